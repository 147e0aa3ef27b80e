package jobs

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// TypesCommand lists the types of a running dispatcher.
func TypesCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	var q rest.Query
	cmd := settings.List(a.Invocation, &cobra.Command{
		Use:     "types",
		Short:   "List types, their slots and their waiting jobs",
		Example: "  dispatcherd types\n  dispatcherd types --limit 50 -o jsonl",
	}, "/v1/types", &q, &q, "type, slots, free, other slots, pending, known, requests, oldest", typeRow,
		"No type is known: no worker has offered one.")
	a.APIFlags(cmd.Flags())
	return cmd
}

func typeRow(t *httpapi.Type) []any {
	return []any{
		t.Type, t.Capacity, t.Free, t.OtherSlots, pendingText(t.Pending), t.Known, t.Requests, spanOf(max(t.Oldest, t.OldestKeyed)),
	}
}

// pendingText returns a count of pending rows, which is exact up to a limit.
func pendingText(rows *int) string {
	switch {
	case rows == nil:
		return "not counted"
	case *rows > contract.PendingLimit:
		return "over " + strconv.Itoa(contract.PendingLimit)
	}
	return strconv.Itoa(*rows)
}
