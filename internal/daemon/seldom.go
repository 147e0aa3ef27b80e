package daemon

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// seldom logs what somebody outside can bring about at will: at most one line in
// a while, with how many it stands for.
type seldom struct {
	log   *zap.Logger
	every time.Duration

	mu      sync.Mutex
	next    time.Time
	skipped int
}

// warn logs a line, or counts it for the next one.
func (s *seldom) warn(message string, fields ...zap.Field) {
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
