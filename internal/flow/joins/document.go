package joins

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// Members of the objects of a document. Postgres rejects others, but of a repeated member it takes the last one.
var (
	flowFields = []string{"name", "callback", "nodes"}
	jobFields  = []string{"type", "payload", "priority", "run_at", "max_attempts", "timeout_ms", "expected_ms", "keys", "traceparent",
		"backoff"}
	callbackFields = append(slices.Clone(jobFields), "run_when")
	nodeFields     = append(slices.Clone(callbackFields), "name", "after", "takes_results")
)

// checkRepeated returns a RefusedError if an object has a member twice.
func checkRepeated(object []byte, fields []string, rule, what string) error {
	if err := jsontext.CheckNames(object, fields, true); err != nil {
		return refuse(ErrInvalid, rule, "%s: %v", what, err)
	}
	return nil
}

// Document is what the programs read of the document of a flow.
type Document struct {
	Callback json.RawMessage   `json:"callback"`
	Nodes    []json.RawMessage `json:"nodes"`
}

// checkDocument returns an error if an object of a flow has a member twice, or Postgres cannot store a node.
func checkDocument(document []byte) error {
	var flow Document
	if err := json.Unmarshal(document, &flow); err != nil {
		return nil //nolint:nilerr // Postgres names the value of another type
	}
	err := checkRepeated(document, flowFields, "flow_has_known_members", "flow")
	if err == nil && flow.Callback != nil {
		err = checkRepeated(flow.Callback, callbackFields, "flow_has_known_members", "flow: the callback")
	}
	for i := 0; err == nil && i < len(flow.Nodes); i++ {
		err = checkNode(i, flow.Nodes[i])
	}
	return err
}

func checkNode(place int, node []byte) error {
	rule, err := "node_has_known_members", jsontext.CheckNames(node, nodeFields, true)
	if err == nil {
		rule, err = "node_can_be_stored", jsontext.CheckSendable(node)
	}
	if err == nil {
		return nil
	}
	var named struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(node, &named) != nil || named.Name == "" {
		named.Name = strconv.Itoa(place + 1)
	}
	return &RefusedError{Rule: rule, Node: named.Name, message: fmt.Sprintf("flow: node %q: %v", named.Name, err), kind: ErrInvalid}
}
