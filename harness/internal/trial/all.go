package trial

// All returns the experiments in the order in which they run.
func All() []*Trial {
	return []*Trial{
		&workerKill, &dispatcherKill, &takeover, &takeoverPair, &allFaults, &partition, &workerNetwork, &lostAnswers, &stoppedDispatcher, &stoppedWorker,
		&readOnly, &fullDisk, &terminated, &failover, &outages, &notifyOff, &blind, &poison, &rolling,
		&callers, &manyDispatchers, &halfOpen, &bounds, &databaseClock, &clockAhead, &restore, &clockJumps,
		&rowLocks, &unreadableRows, &largeBatches, &operatorUpdates,
	}
}
