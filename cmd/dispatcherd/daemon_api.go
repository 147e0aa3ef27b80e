package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
)

// serveAPI answers operators on the API socket until ctx is done.
func (d *daemon) serveAPI(ctx context.Context, l net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", d.live)
	mux.HandleFunc("GET /readyz", d.ready)
	mux.HandleFunc("GET /v1/slots", d.listSlots)
	mux.HandleFunc("GET /v1/types", d.listTypes)
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{}))
	srv := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          zap.NewStdLog(d.log),
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		d.log.Error("API socket", zap.Error(err))
	}
}

// live says whether the loop turns; nothing else may end the process.
func (d *daemon) live(w http.ResponseWriter, _ *http.Request) {
	if !d.loop.Ask(func(*actor.Core) {}) {
		http.Error(w, "the loop has ended", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// ready says whether new work is taken: the loop turns and Postgres answers.
func (d *daemon) ready(w http.ResponseWriter, _ *http.Request) {
	var g actor.Gauges
	if !d.loop.Ask(func(c *actor.Core) { g = c.Gauges() }) || g.Outage {
		http.Error(w, "Postgres does not answer, or the dispatcher stops", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// slotView is a slot as the API shows it.
type slotView struct {
	Slot     int64    `json:"slot"`
	Worker   string   `json:"worker"`
	Session  int64    `json:"session"`
	Number   int32    `json:"number"`
	Types    []string `json:"types"`
	State    string   `json:"state"`
	Draining bool     `json:"draining,omitempty"`
	Job      int64    `json:"job,omitempty"`
	JobType  string   `json:"job_type,omitempty"`
	Attempt  int32    `json:"attempt,omitempty"`
}

func (d *daemon) listSlots(w http.ResponseWriter, _ *http.Request) {
	var slots []actor.SlotInfo
	d.loop.Ask(func(c *actor.Core) { slots = c.Slots() })
	views := make([]slotView, len(slots))
	for i, s := range slots {
		views[i] = slotView{
			Slot: int64(s.ID), Worker: s.Worker, Session: int64(s.Session), Number: s.Number, Types: s.Types,
			State: s.State, Draining: s.Draining, Job: int64(s.Job), JobType: s.JobType, Attempt: int32(s.Attempt),
		}
	}
	answerJSON(w, map[string]any{"slots": views})
}

// typeView is a type as the API shows it.
type typeView struct {
	Type     string  `json:"type"`
	Capacity int     `json:"capacity"`
	Free     int     `json:"free"`
	Cached   int     `json:"cached"`
	Requests int     `json:"requests"`
	Oldest   float64 `json:"oldest_seconds"`
}

func (d *daemon) listTypes(w http.ResponseWriter, _ *http.Request) {
	var types []actor.TypeInfo
	d.loop.Ask(func(c *actor.Core) { types = c.Types() })
	views := make([]typeView, len(types))
	for i, t := range types {
		views[i] = typeView{
			Type: t.Name, Capacity: t.Capacity, Free: t.Free, Cached: t.Cached, Requests: t.Requests, Oldest: t.Oldest.Seconds(),
		}
	}
	answerJSON(w, map[string]any{"types": views})
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client is gone; nobody is left to tell
}
