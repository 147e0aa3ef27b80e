package trial

// All returns the experiments in the order in which they run.
func All() []*Trial {
	return []*Trial{
		&workerKill, &dispatcherKill, &storm, &partition, &workerNetwork, &lostAnswers, &stoppedDispatcher, &stoppedWorker,
		&readOnly, &fullDisk, &terminated, &failover, &deaf, &blind, &poison, &rolling,
		&callers, &crowd, &halfOpen, &bounds, &clockJumps,
	}
}
