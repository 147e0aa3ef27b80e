package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// noops are the slots of workers whose jobs do nothing.
var noops = []stage.Offer{{Slots: 10, Types: []string{stage.TimedType}}}

// inTurn sends n requests one after the other, and returns the median of the times that they took in milliseconds.
func inTurn(ctx context.Context, d *stage.Daemon, n int) (float64, error) {
	c, err := client.New(client.Options{Socket: d.API})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var waits []float64
	for i := range n {
		began := time.Now()
		if _, err := c.Do(ctx, client.Request{Type: stage.TimedType, Payload: map[string]int{"n": i}}); err != nil {
			return 0, err
		}
		waits = append(waits, time.Since(began).Seconds()*1000)
	}
	return stats.Quantile(waits, 0.5), nil
}

// Requests measures requests at a dispatcher without slots, which another dispatcher executes.
func Requests(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	st, err := stage.Start(ctx, env, stage.Setup{
		Name: "requests", Daemons: 2, Idle: 1, Workers: 1, Plain: true, Direct: true, Offers: noops, Types: []string{stage.TimedType},
	})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	if err := rig.Pause(ctx, published); err != nil {
		return nil, nil, err
	}
	var ways [2][]float64
	if err := rig.Rounds(5, len(ways), func(_, i int) error {
		p50, err := inTurn(ctx, st.Daemons[i], n/5)
		ways[i] = append(ways[i], p50)
		return err
	}); err != nil {
		return nil, nil, err
	}
	return figure.Figures{figure.AtMost("request_via_queue_p50_ms", stats.Quantile(ways[0], 0.5), 15)},
		figure.Figures{figure.AtLeast("request_local_p50_ms", stats.Quantile(ways[1], 0.5), 0)}, nil
}

// published is the time until each dispatcher knows what the others offer.
const published = 4 * time.Second

// oneWay is the delay of the network in each direction.
const oneWay = time.Millisecond

// Delay compares requests on a worker behind a delay with requests on a local worker.
func Delay(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	setup := stage.Setup{Name: "near", Daemons: 1, Workers: 1, Plain: true, Direct: true, Offers: noops, Types: []string{stage.TimedType}}
	near, err := stage.Start(ctx, env, setup)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, near.Close(ctx)) }()
	setup.Name, setup.Direct, setup.Remote = "distant", false, true
	far, err := stage.Start(ctx, env, setup)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, far.Close(ctx)) }()
	roundTrip, err := delayed(far.Workers[0], n/5)
	if err != nil {
		return nil, nil, err
	}
	var waits [2][]float64
	if err := rig.Rounds(5, len(waits), func(_, i int) error {
		p50, err := inTurn(ctx, []*stage.Stage{near, far}[i].Daemons[0], n/5)
		waits[i] = append(waits[i], p50)
		return err
	}); err != nil {
		return nil, nil, err
	}
	local, remote := stats.Quantile(waits[0], 0.5), stats.Quantile(waits[1], 0.5)
	return figure.Figures{figure.AtMost("delay_p50_more_ms", remote-local, 1+1.3*roundTrip)},
		figure.Figures{figure.AtLeast("delay_rtt_ms", roundTrip, 0), figure.AtLeast("delay_local_p50_ms", local, 0)}, nil
}

// delayed lets the link of a worker delay each piece, and returns the time that a byte takes there and back over such a link.
func delayed(w *stage.Worker, n int) (float64, error) {
	rules := fault.Rules{Delay: oneWay}
	w.Set(rules)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	p, err := fault.Listen("tcp", "127.0.0.1:0", "tcp", l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.Close() }()
	p.Set(rules)
	go echo(l)
	conn, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	var trips []float64
	for range n {
		began, b := time.Now(), []byte{0}
		if _, err := conn.Write(b); err != nil {
			return 0, err
		}
		if _, err := conn.Read(b); err != nil {
			return 0, err
		}
		trips = append(trips, time.Since(began).Seconds()*1000)
	}
	return stats.Quantile(trips, 0.5), nil
}

// echo returns each byte of the first connection.
func echo(l net.Listener) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	for b := make([]byte, 1); ; {
		if _, err := conn.Read(b); err != nil {
			return
		}
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}
