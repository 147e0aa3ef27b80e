package contract

import (
	"encoding/json"

	"github.com/dispatcherd/dispatcherd"
)

// ChunkResult is the answer of one chunk of a fan-out.
type ChunkResult struct {
	OK     bool            `json:"ok"`
	Result json.RawMessage `json:"result,omitempty"` // with ok; null if the worker returned none
	Error  string          `json:"error,omitempty"`  // without ok
	Code   string          `json:"code,omitempty"`   // without ok: name of a problem
	Worker string          `json:"worker"`
	Items  int             `json:"items,omitempty"` // number of items in the chunk
}

// FanOutBatch answers a durable fan-out.
type FanOutBatch struct {
	Batch  dispatcherd.JobID `json:"batch"`
	Chunks int               `json:"chunks"`
}
