package claim

import (
	"math"
	"strconv"
	"strings"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// parseNotification reads "id priority run_at type", run_at in microseconds since
// 1970. Any session may NOTIFY, so it checks everything.
func parseNotification(payload string) (a contract.RowNotification, ok bool) {
	fields := strings.SplitN(payload, " ", 4)
	if len(fields) != 4 {
		return a, false
	}
	id, err1 := strconv.ParseInt(fields[0], 10, 64)
	priority, err2 := strconv.ParseUint(fields[1], 10, 8)
	runAt, err3 := strconv.ParseInt(fields[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || id <= 0 || priority > uint64(dispatcherd.MaxPriority) ||
		runAt < 0 || runAt > math.MaxInt64/2 ||
		fields[3] == "" || len(fields[3]) > dispatcherd.MaxTypeLength {
		return a, false
	}
	return contract.RowNotification{
		Type: fields[3], Priority: dispatcherd.Priority(priority),
		Key: contract.Key{RunAt: runAt, ID: dispatcherd.JobID(id)},
	}, true
}
