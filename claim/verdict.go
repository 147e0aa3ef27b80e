package claim

import (
	"errors"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
)

// notSentError wraps the error of a statement that certainly changed nothing, usually
// because it was never sent.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

// verdictOf classifies the error of a statement that changes something. Only a
// message of severity ERROR proves the rollback: FATAL may also come between
// the commit and its acknowledgement. pgconn.SafeToRetry proves nothing here: a
// batch whose answer was cut off also ends with "conn closed", which counts as safe.
func verdictOf(err error) contract.Verdict {
	if err == nil {
		return contract.OK
	}
	if _, never := errors.AsType[notSentError](err); never {
		return contract.Refused
	}
	if dsn.ErrorOf(err).SeverityUnlocalized == "ERROR" {
		return contract.Refused
	}
	return contract.Unknown
}
