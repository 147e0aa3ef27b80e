package claim

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
)

// perPool is how many statements of one kind may be under way beside each
// other. While one waits for the disk the other works; on more than two the
// sizes of the batches would suffer.
const perPool = 2

// A pool is the links for one kind of statement. The one that was used last is
// used next, so the second connects only when two statements are under way.
type pool struct {
	links []*link

	mu   sync.Mutex
	idle []*link // the next one last
}

func newPool(c Config, purpose string, statements map[string]string) (*pool, error) {
	p := &pool{}
	var errs [perPool]error
	for i := range perPool {
		var l *link
		l, errs[i] = newLink(c, purpose, statements)
		p.links = append(p.links, l)
	}
	p.idle = append(p.idle, p.links...)
	return p, errors.Join(errs[:]...)
}

// do runs f with a link whose turn it holds. If all are busy it waits for the
// first one.
func (p *pool) do(ctx context.Context, op Operation, f func(context.Context, *link) (int, error)) error {
	l, idle := p.take()
	if idle {
		defer p.give(l)
	}
	return l.do(ctx, op, func(ctx context.Context, _ *pgx.Conn) (int, error) { return f(ctx, l) })
}

func (p *pool) take() (l *link, idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return p.links[0], false
	}
	l, p.idle = p.idle[n-1], p.idle[:n-1]
	return l, true
}

func (p *pool) give(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, l)
}
