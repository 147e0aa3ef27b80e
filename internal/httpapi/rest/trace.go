package rest

import "context"

type traceKey struct{}

// WithTraceparent returns a context for a call with a trace context, which jobs get that it inserts without one.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, traceKey{}, &traceparent)
}

// TraceparentOf returns the trace context of a call, nil if it has none.
func TraceparentOf(ctx context.Context) *string {
	traceparent, _ := ctx.Value(traceKey{}).(*string)
	return traceparent
}
