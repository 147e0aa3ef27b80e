package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write docs/openapi.json anew; look at the difference before it is committed")

const describedIn = "../docs/openapi.json"

// What is linted, and read by whoever makes a client from it, is what the daemon
// serves.
func TestTheCommittedDescriptionIsTheServedOne(t *testing.T) {
	h, _, _ := house(t, nil)
	var text bytes.Buffer
	require.NoError(t, json.Indent(&text, h.Description(), "", " "))
	text.WriteByte('\n')
	if *rewrite {
		require.NoError(t, os.WriteFile(describedIn, text.Bytes(), 0o644))
	}
	committed, err := os.ReadFile(describedIn)
	require.NoError(t, err)
	require.Equal(t, text.String(), string(committed), "go test ./api -run Committed -rewrite")
}
