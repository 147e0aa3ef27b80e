package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// The hidden first arguments that make this program another process of the flood.
const (
	sinkProcess  = "flood-sink"  // a plain listener, which reads and never answers
	floodProcess = "flood-peers" // the generator; the other arguments are an address, the number of slow peers, and a file to trust
)

// The attack: connections per second of each kind.
const (
	floodWorkers  = 100
	handshakeRate = 100 // handshakes that nothing follows, and as many hellos without a token
	slowRate      = 500 // handshakes of which a byte follows each second
	requestRate   = 100 // requests that honest callers send
)

// Flood measures on-demand jobs on remote workers beside peers that never prove who they are: at the TLS listener of the workers, and
// at a plain listener in another process.
func Flood(ctx context.Context, env *rig.Rig, slow, rounds int, window time.Duration) (figures, details figure.Figures, err error) {
	st, err := stage.Start(ctx, env, stage.Setup{
		Name: "flood", Daemons: 1, Workers: 1, Members: floodWorkers, Remote: true, Direct: true, Plain: true,
		Offers: []stage.Offer{{Slots: 1, Types: []string{stage.TimedType}}}, Types: []string{stage.TimedType},
	})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	sink, err := rig.RunSelf("sink", sinkProcess)
	if err != nil {
		return nil, nil, err
	}
	defer sink.Kill()
	at, err := sink.Expect("ready")
	if err != nil {
		return nil, nil, err
	}
	c, err := st.Credentials()
	if err != nil {
		return nil, nil, err
	}
	addresses := [2]string{at[0], "127.0.0.1:" + st.Daemons[0].Port}
	var p50, p99 [2][]float64
	err = rig.Rounds(rounds, len(addresses), func(_, i int) error {
		waits, err := besideFlood(ctx, st, window, addresses[i], strconv.Itoa(slow), c.Cert)
		p50[i], p99[i] = append(p50[i], stats.Quantile(waits, 0.5)), append(p99[i], stats.Quantile(waits, 0.99))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return figure.Figures{figure.AtMost("flood_p99_ratio", stats.Quantile(stats.Quotients(p99[1], p99[0]), 0.5), 2)},
		figure.Figures{
			figure.AtLeast("flood_p99_ms", stats.Quantile(p99[1], 0.5), 0), figure.AtLeast("flood_plain_p99_ms", stats.Quantile(p99[0], 0.5), 0),
			figure.AtLeast("flood_p50_ms", stats.Quantile(p50[1], 0.5), 0), figure.AtLeast("flood_plain_p50_ms", stats.Quantile(p50[0], 0.5), 0),
		}, nil
}

// besideFlood returns how long requests took in milliseconds while the generator runs.
func besideFlood(ctx context.Context, st *stage.Stage, window time.Duration, generator ...string) ([]float64, error) {
	peers, err := rig.RunSelf("flood", append([]string{floodProcess}, generator...)...)
	if err != nil {
		return nil, err
	}
	defer peers.Kill()
	if _, err := peers.Expect("ready"); err != nil { // all slow peers are connected
		return nil, err
	}
	return requests(ctx, st.Daemons[0], requestRate, window)
}

// requests sends requests to a daemon at a rate, and returns how long each took in milliseconds.
func requests(ctx context.Context, d *stage.Daemon, rate int, window time.Duration) ([]float64, error) {
	c, err := client.New(client.Options{Socket: d.API})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	n := int(float64(rate) * window.Seconds())
	waits, failed := make([]float64, n), make(chan error, n)
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for i := range n {
		<-ticker.C
		go func() {
			began := time.Now()
			_, err := c.Do(ctx, client.Request{Type: stage.TimedType, Payload: map[string]int{"n": i}})
			waits[i] = time.Since(began).Seconds() * 1000
			failed <- err
		}()
	}
	for range n {
		err = errors.Join(err, <-failed)
	}
	return waits, err
}

// serveSink accepts connections and reads what they send until ctx ends.
func serveSink(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	fmt.Println("ready", l.Addr())
	for {
		conn, err := l.Accept()
		if err != nil {
			return nil //nolint:nilerr // the listener was closed
		}
		go func() {
			_, _ = io.Copy(io.Discard, conn) // until the peer closes it
			_ = conn.Close()
		}()
	}
}

// flood is the generator: peers of a listener that never prove who they are.
type flood struct {
	address string
	tls     *tls.Config
}

// serveFlood runs the generator until ctx ends.
func serveFlood(ctx context.Context, args []string) error {
	slow, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	f := &flood{address: args[0]}
	if f.tls, err = trust(&rig.Credentials{Cert: args[2]}); err != nil {
		return err
	}
	hello, err := f.clientHello()
	if err != nil {
		return err
	}
	places := make(chan struct{}, slow) // a slow peer whose connection was closed returns
	go every(ctx, slowRate, func() {
		select {
		case places <- struct{}{}:
			go func() {
				f.slow(ctx, hello)
				<-places
			}()
		default:
		}
	})
	go every(ctx, handshakeRate, func() { go f.handshake(ctx, "") })
	go every(ctx, handshakeRate, func() {
		go f.handshake(ctx, `{"op":"hello","versions":[1,1],"worker":"stranger","slots":[{"slot":0,"types":["idle"]}]}`+"\n")
	})
	if err := rig.Pause(ctx, time.Duration(slow/slowRate+1)*time.Second); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}

// every calls a function at a rate per second until ctx ends.
func every(ctx context.Context, perSecond int, do func()) {
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	for ctx.Err() == nil {
		<-ticker.C
		do()
	}
}

// handshake opens a connection, says something, and waits until the peer closes it, for at most some seconds.
func (f *flood) handshake(ctx context.Context, say string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: f.tls}).DialContext(ctx, "tcp", f.address)
	if err != nil {
		return // refused, or the peer is no TLS server
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if say != "" {
		_, _ = io.WriteString(conn, say)
		_, _ = io.Copy(io.Discard, conn) // until the peer closes it
	}
}

// slow sends a byte of its first message each second.
func (f *flood) slow(ctx context.Context, hello []byte) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", f.address)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	for i := range hello {
		if _, err := conn.Write(hello[i : i+1]); err != nil || rig.Pause(ctx, time.Second) != nil {
			return
		}
	}
}

// clientHello returns the first message of a TLS client.
func (f *flood) clientHello() ([]byte, error) {
	near, far := net.Pipe()
	go func() { _ = tls.Client(near, f.tls).Handshake() }() // ends when far is closed
	message := make([]byte, 4096)
	n, err := far.Read(message)
	return message[:n], errors.Join(err, far.Close())
}
