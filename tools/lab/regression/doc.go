// Command regression compares two commits: the rate at which no-op jobs pass
// through four worker processes, and the rate of a producer's COPY.
//
//	go run ./regression -base COMMIT [-head COMMIT] [-short] [-rounds N] [-jobs N] [-copy N]
//
// Each commit is checked out into a worktree of its own below a temporary
// directory, which is removed afterwards. Daemon, worker and schema of a side
// come from its commit. The sides alternate, and every round changes which one
// begins. Both use one Postgres and a fresh database for each run. The end of a
// run is read from the table, so that the two sides need no metric in common.
//
// The last line is for programs:
//
//	noop: rate=… base=… ratio=… copy_ratio=… spread=… daemon_cpu_ratio=… postgres_cpu_ratio=… worker_cpu_ratio=…
//
// rate and base are medians in jobs a second. ratio and copy_ratio are medians
// of the quotients of the rounds, because two runs side by side share the
// condition of the machine. spread is the distance between the largest and
// the smallest quotient of the no-op rates. The other three are medians of the
// quotients of processor times per job. They vary less on a machine with other load.
package main
