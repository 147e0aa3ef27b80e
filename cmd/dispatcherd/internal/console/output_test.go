package console

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachTableRowIsOneLine(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeTable(&b, []string{"id", "error"}, [][]string{
		{"1", "two\nlines\x1b[31m"}, {"22", ""}, {"333", "plain"},
	}))
	require.Equal(t, "ID   ERROR\n1    two lines [31m\n22   -\n333  plain\n", b.String())
}
