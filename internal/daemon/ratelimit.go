package daemon

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// rateLimitedLog logs an event that a peer can cause at any rate: at most one line per
// interval, with the number of events since the previous line.
type rateLimitedLog struct {
	log   *zap.Logger
	every time.Duration // the interval

	mu      sync.Mutex
	next    time.Time
	skipped int
}

// warn logs a line, or counts the event for the next line.
func (s *rateLimitedLog) warn(message string, fields ...zap.Field) {
	s.mu.Lock()
	now := time.Now()
	if now.Before(s.next) {
		s.skipped++
		s.mu.Unlock()
		return
	}
	s.next = now.Add(s.every)
	skipped := s.skipped
	s.skipped = 0
	s.mu.Unlock()
	s.log.Warn(message, append(fields, zap.Int("not_logged_since", skipped))...)
}
