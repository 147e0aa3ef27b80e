package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestWhatOutsidersBringAboutIsLoggedSeldomAndCounted(t *testing.T) {
	book := &logBook{}
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), book, zapcore.DebugLevel))
	s := &seldom{log: log, every: time.Hour}
	for range 5 {
		s.warn("again")
	}
	require.Equal(t, 1, strings.Count(book.text(), "again"))
	s.next = time.Time{} // the hour is over
	s.warn("again")
	require.Equal(t, 2, strings.Count(book.text(), "again"))
	require.Contains(t, book.text(), `"not_logged_since":4`)
}
