package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/quota"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// frameRoute is the route of requests in frames, for metrics.
const frameRoute = "frame request"

// frameSlack is the space in a frame for everything except the payload or result.
const frameSlack = 64 << 10

// minFrame is the smallest limit of frames, because a result may be as large as a worker's
// frame.
const minFrame = 1 << 20

// serveFrames serves callers that use frames, until ctx is done.
func (h *Handler) serveFrames(ctx context.Context, l net.Listener, open *connections) error {
	limits := workerproto.Limits{
		Dispatcher: h.cfg.Dispatcher,
		MaxFrame:   max(h.cfg.MaxPayload, minFrame) + frameSlack, MaxConnections: h.cfg.MaxConnections,
		MaxRequests: h.cfg.OpenRequests, Outbox: 2*h.cfg.OpenRequests + 1024, Hold: h.requests.Hold,
		HelloTimeout: h.cfg.HeaderTimeout, WriteTimeout: h.cfg.WriteTimeout,
	}
	if open.guests {
		limits.Identify = func(conn net.Conn, token string) (workerproto.Peer, string) {
			visitor, objection := h.Identify(conn.(*callerConn).Conn, token)
			switch {
			case objection != "":
				h.obs.Refused(BoundToken)
			case visitor.Rights&MayOperate == 0:
				objection = Lacks(visitor.Peer, "operate", "a request")
			default:
				open.identified(conn, visitor.User())
			}
			return visitor.Peer, objection
		}
	}
	return workerproto.ServeCallers(ctx, l, limits, (*frames)(h), frameObserver{obs: h.obs})
}

// frames makes Handler a workerproto.CallerHandler.
type frames Handler

// Open implements workerproto.CallerHandler.
func (h *frames) Open(s *workerproto.CallerSession) {
	s.Value = &frameSession{h: (*Handler)(h), session: s, open: map[int64]*frameRequest{}}
	h.frameSessions.Add(1)
}

// Frames implements workerproto.CallerHandler.
func (*frames) Frames(s *workerproto.CallerSession, list []workerproto.CallerFrame) {
	session := s.Value.(*frameSession)
	for _, f := range list {
		switch f := f.(type) {
		case *workerproto.Request:
			session.begin(f)
		case *workerproto.CancelRequest:
			session.cancel(f.ID)
		}
	}
}

// Closed implements workerproto.CallerHandler. It cancels the requests of the session, as
// HTTP does when a caller disconnects.
func (h *frames) Closed(s *workerproto.CallerSession, _ error) {
	session := s.Value.(*frameSession)
	session.mu.Lock()
	open := session.open
	session.open = nil
	session.mu.Unlock()
	for _, r := range open { // order-free: the requests are independent
		r.abandon(nil)
		r.finished(rest.CallerGone.Status)
	}
	session.following.Wait()
	h.frameSessions.Add(-1)
}

// frameSession holds the open requests of one session.
type frameSession struct {
	h         *Handler
	session   *workerproto.CallerSession
	following sync.WaitGroup // goroutines of followed requests

	mu   sync.Mutex
	open map[int64]*frameRequest
}

// frameRequest is one open request. If the request is in memory and has one caller, it is
// direct: the loop of the dispatcher answers it, and frameRequest is its ondemand.Caller.
// Any other request is followed: a goroutine waits for its events and answer.
type frameRequest struct {
	ondemand.AnswerOnly

	s      *frameSession
	id     int64
	began  time.Time
	body   *ondemand.Body
	job    dispatcherd.JobID       // of a direct request; used only by the reader of the session
	missed int                     // events of a followed request that the caller does not know to be missing
	stop   context.CancelCauseFunc // of a followed request; the cause is errCancelled, or nil after a disconnect
}

// errCancelled says that the caller cancelled a request.
var errCancelled = errors.New("the caller cancelled it")

// begin starts a request.
func (s *frameSession) begin(f *workerproto.Request) {
	r := &frameRequest{s: s, id: f.ID, began: time.Now(), body: s.h.requests.NewBody(s.session.Peer().User())}
	s.mu.Lock()
	_, taken := s.open[f.ID]
	full := len(s.open) >= s.session.MaxRequests()
	if !taken {
		s.open[f.ID] = r
		s.h.frameRequests.Add(1)
	}
	s.mu.Unlock()
	switch {
	case taken:
		s.session.Send(workerproto.Complain(workerproto.DuplicateID, "request %d is open already", f.ID))
		return
	case full:
		s.h.obs.Refused(BoundOpenRequests)
		r.fail(rest.QueueFull.Of(fmt.Sprintf("this connection has %d open requests, which is the limit", s.session.MaxRequests())).Retryable())
		return
	}
	r.try(func() error { return r.submit(f) })
}

// try executes a step of the request. An error or a panic of the step ends the request.
func (r *frameRequest) try(step func() error) {
	var err error
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
		if err != nil {
			r.fail(r.s.h.problemOn(frameRoute, err))
		}
	}()
	err = step()
}

// submit checks a request and passes it to the dispatcher.
func (r *frameRequest) submit(f *workerproto.Request) (err error) {
	h := r.s.h
	o := ondemand.Request{Options: *f, User: r.body.User()}
	if err := h.requests.Check(&o); err != nil {
		return err
	}
	if err := h.permit(r.s.session.Peer(), o.Type); err != nil {
		return err
	}
	if len(f.Payload) > h.cfg.MaxPayload {
		return &http.MaxBytesError{Limit: int64(h.cfg.MaxPayload)}
	}
	if err := r.body.Add(int64(len(f.Payload))); err != nil {
		return err
	}
	h.requests.Route(&o)
	if !o.Events && !o.Shared() {
		r.job, err = h.requests.Submit(context.Background(), &o, r)
		return err
	}
	ctx, stop := context.WithCancelCause(quota.WithUser(context.Background(), o.User))
	r.stop = stop
	r.s.following.Go(func() {
		defer stop(nil)
		r.try(func() error { return r.follow(ctx, &o) })
	})
	return nil
}

// cancel cancels an open request. It answers a direct request, unless the dispatcher has
// answered before. The goroutine of a followed request answers that request.
func (s *frameSession) cancel(id int64) {
	s.mu.Lock()
	r := s.open[id]
	s.mu.Unlock()
	if r == nil {
		return
	}
	r.abandon(errCancelled)
	if r.stop == nil {
		r.fail(rest.JobCancelled.Of(errCancelled.Error()))
	}
}

// abandon tells the dispatcher that the caller no longer waits for the request.
func (r *frameRequest) abandon(cause error) {
	switch {
	case r.stop != nil:
		r.stop(cause)
	case r.job != 0:
		r.s.h.backend.Abandon(r.job, r)
	}
}

// Answered implements ondemand.Caller.
func (r *frameRequest) Answered(a ondemand.Answer) { r.answer(0, &a) }

// answer ends the request with the answer of the dispatcher.
func (r *frameRequest) answer(job dispatcherd.JobID, a *ondemand.Answer) {
	if a.Kind != ondemand.Done {
		r.fail(ondemand.ExplainAnswer(a).About(job))
		return
	}
	f := &workerproto.Answer{ID: r.id, Job: max(job, 0), Via: a.Via, Worker: a.Worker, Result: a.Result()}
	if f.Size() > r.s.session.MaxFrame() {
		r.fail(
			rest.TooLarge.Of(fmt.Sprintf("the result has %d bytes and does not fit into a frame; use HTTP for it", len(f.Result))).About(job),
		)
		return
	}
	r.end(f, http.StatusOK)
}

// fail ends the request with a problem.
func (r *frameRequest) fail(p *rest.Problem) {
	r.end(answerOf(r.id, p), p.Status)
}

// answerOf returns the answer to a request that ends with a problem.
func answerOf(request int64, p *rest.Problem) *workerproto.Answer {
	return &workerproto.Answer{ID: request, Job: p.Job, Via: p.Via, Code: p.Name(), Message: p.Detail, RetryAfter: p.RetryAfter()}
}

// end sends the one answer of the request. Later calls change nothing.
func (r *frameRequest) end(f *workerproto.Answer, status int) {
	r.s.mu.Lock()
	open := r.s.open[r.id] == r
	if open {
		delete(r.s.open, r.id)
	}
	r.s.mu.Unlock()
	if !open {
		return
	}
	r.body.Drop()
	if err := r.s.session.Offer(f); err != nil {
		p := problemOf(err)
		f, status = answerOf(r.id, p.About(f.Job)), p.Status
		r.s.session.Send(f)
	}
	r.finished(status)
}

// finished counts the end of a request that is no longer open.
func (r *frameRequest) finished(status int) {
	r.body.Drop()
	r.s.h.frameRequests.Add(-1)
	r.s.h.obs.Responded(frameRoute, status, time.Since(r.began))
}

// follow sends the events and the answer of a followed request.
func (r *frameRequest) follow(ctx context.Context, o *ondemand.Request) error {
	pass := func(v *ondemand.View) error {
		if o.Events {
			r.sendEvents(v)
		}
		return nil
	}
	f, err := r.s.h.requests.Begin(ctx, o, r.body)
	if err == nil {
		defer func() {
			if errors.Is(context.Cause(ctx), errCancelled) {
				f.Withdraw()
			} else {
				f.Leave()
			}
		}()
		var v ondemand.View
		var a *ondemand.Answer
		if v, a, err = f.Follow(ctx, f.Look(0), nil, pass); err == nil {
			r.tellMissed()
			r.answer(v.Job, a)
		}
	}
	if err != nil && ctx.Err() != nil {
		return rest.JobCancelled.Of(errCancelled.Error())
	}
	return err
}

// sendEvents sends the events of a view. An event that exceeds the share of the user is left out.
func (r *frameRequest) sendEvents(v *ondemand.View) {
	if v.Missed > 0 {
		r.s.h.obs.Refused(BoundEvents)
		r.missed += v.Missed
	}
	for i := range v.Events {
		var f workerproto.DispatcherFrame
		switch e := &v.Events[i]; e.Name {
		case "progress":
			f = &workerproto.RequestProgress{ID: r.id, Data: e.Data}
		case "partial":
			f = &workerproto.RequestPartial{ID: r.id, Data: e.Data}
		case "queued":
			f = &workerproto.Queued{ID: r.id, Rank: e.Rank.OfType, Waiting: e.Rank.Waiting, Via: e.Rank.Via}
		case "started":
			f = &workerproto.Started{ID: r.id, Slot: e.Slot, Worker: e.Worker}
		default:
			continue
		}
		r.tellMissed()
		if r.missed > 0 || r.s.session.Offer(f) != nil {
			r.missed++
		}
	}
}

// tellMissed tells the caller how many events are missing, or leaves it to the next event.
func (r *frameRequest) tellMissed() {
	if r.missed > 0 && r.s.session.Offer(&workerproto.Gap{ID: r.id, Missed: r.missed}) == nil {
		r.missed = 0
	}
}

// frameObserver counts the errors of sessions of callers by bound.
type frameObserver struct {
	workerproto.NoObserver

	obs Observer
}

// Complained implements workerproto.Observer.
func (o frameObserver) Complained(code workerproto.Code) {
	switch code {
	case workerproto.SlowReader:
		o.obs.Refused(BoundSlowReader)
	case workerproto.FrameTooLong:
		o.obs.Refused(BoundPayload)
	}
}
