package fault

import (
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// pair is a client's connection and the proxy's connection to the server.
type pair struct {
	proxy           *Proxy
	client, server  net.Conn
	once            sync.Once
	done            chan struct{}
	outboundBlocked atomic.Bool // half-open: no byte reaches the client any more
	loseNext        atomic.Bool // the answer of the current request will be lost
}

func (c *pair) run() {
	var both sync.WaitGroup
	both.Go(func() { c.pump(c.client, c.server, true) })
	both.Go(func() { c.pump(c.server, c.client, false) })
	both.Wait()
	c.cut()
}

func (c *pair) cut() {
	c.once.Do(func() {
		close(c.done)
		_ = c.client.Close() // an error is ignored: the connection ends in any case
		_ = c.server.Close()
	})
}

func (c *pair) reset() {
	for _, conn := range []net.Conn{c.client, c.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a closed connection cannot be reset
		}
	}
	c.cut()
}

func (c *pair) halfOpen() {
	c.outboundBlocked.Store(true)
	_ = c.server.Close() // an error is ignored: the connection ends in any case
}

// pump forwards one direction until either end closes.
func (c *pair) pump(from, to net.Conn, up bool) {
	buf := make([]byte, 32<<10)
	requests, answers := statements{startup: true}, statements{}
	for {
		n, err := from.Read(buf)
		if n > 0 && c.hold(up) {
			piece := buf[:n]
			if up {
				c.judge(&requests, piece)
			} else if c.dropAnswer(&answers, piece) {
				continue
			}
			if _, werr := to.Write(piece); werr != nil && !c.outboundBlocked.Load() {
				err = werr
			}
		}
		if err != nil {
			break
		}
	}
	if c.outboundBlocked.Load() && !up {
		<-c.done // the client receives nothing, not even the end
	}
	if rules, _ := c.proxy.now(); rules.HoldEnds {
		c.hold(up)
	}
	c.cut()
}

// hold waits as long as the rules hold this direction. It returns false if the
// connection has ended.
func (c *pair) hold(up bool) bool {
	rules, changed := c.proxy.now()
	if rules.Delay > 0 {
		timer := time.NewTimer(rules.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.done:
			return false
		}
	}
	for {
		if up && !rules.HoldUp || !up && !rules.HoldDown {
			return true
		}
		select {
		case <-changed:
			rules, changed = c.proxy.now()
		case <-c.done:
			return false
		}
	}
}

// judge decides, when a request passes, whether its answer will be lost.
func (c *pair) judge(requests *statements, piece []byte) {
	rules, _ := c.proxy.now()
	requests.read(piece, func(kind byte, name string) {
		if kind != bind && kind != query || rules.LoseAnswers == 0 {
			return
		}
		for _, lossy := range rules.Lossy {
			if (name == lossy || strings.HasSuffix(lossy, "_") && strings.HasPrefix(name, lossy)) && rand.Float64() < rules.LoseAnswers {
				c.loseNext.Store(true)
			}
		}
	})
}

// dropAnswer drops the answer of a request that was chosen to lose it. It closes the
// connection when the server has reported the end of the transaction.
func (c *pair) dropAnswer(answers *statements, piece []byte) bool {
	loseNext, over := c.loseNext.Load(), false
	answers.read(piece, func(kind byte, _ string) { over = over || kind == readyForQuery })
	if loseNext && over {
		c.proxy.mu.Lock()
		c.proxy.lost++
		c.proxy.mu.Unlock()
		c.cut()
	}
	return loseNext
}
