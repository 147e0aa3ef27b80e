package actor

import (
	"github.com/dispatcherd/dispatcherd/actor/config"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// Event and the names below are aliases, so that users of a Core import this package only.
type (
	Event           = event.Event
	Registered      = event.Registered
	ResumeOffer     = event.ResumeOffer
	Unregistered    = event.Unregistered
	Withdrew        = event.Withdrew
	Released        = event.Released
	Result          = event.Result
	Reported        = event.Reported
	Report          = event.Report
	Requested       = event.Requested
	Abandoned       = event.Abandoned
	Notified        = event.Notified
	Announced       = event.Announced
	Listening       = event.Listening
	CancelRequested = event.CancelRequested
	Fetched         = event.Fetched
	Claimed         = event.Claimed
	Finished        = event.Finished
	GateSet         = event.GateSet
	Disowned        = event.Disowned
	Owned           = event.Owned
	ClusterCapacity = event.ClusterCapacity
	Adopted         = event.Adopted
	Drained         = event.Drained
	Interrupted     = event.Interrupted
	HandedOver      = event.HandedOver
	Tick            = event.Tick
	Together        = event.Together
	Effect          = effect.Effect
	Send            = effect.Send
	Cancel          = effect.Cancel
	Stale           = effect.Stale
	NotHeld         = effect.NotHeld
	RejectSlots     = effect.RejectSlots
	GoAway          = effect.GoAway
	HangUp          = effect.HangUp
	Resume          = effect.Resume
	Welcome         = effect.Welcome
	TurnAway        = effect.TurnAway
	Started         = effect.Started
	Answer          = effect.Answer
	Progress        = effect.Progress
	Partial         = effect.Partial
	Fetch           = effect.Fetch
	Claim           = effect.Claim
	Resolve         = effect.Resolve
	Finish          = effect.Finish
	Adopt           = effect.Adopt
	SetGate         = effect.SetGate
	AnswerKind      = effect.AnswerKind
	Why             = effect.Why
	Config          = config.Config
	Limits          = config.Limits
	Instant         = timing.Instant
	Backoff         = timing.Backoff
)

// Never is the instant that does not come.
const Never = timing.Never

// The answers to on-demand requests.
const (
	AnswerDone        = effect.AnswerDone
	AnswerFailed      = effect.AnswerFailed
	AnswerLate        = effect.AnswerLate
	AnswerUnsupported = effect.AnswerUnsupported
	AnswerBusy        = effect.AnswerBusy
	AnswerStopping    = effect.AnswerStopping
)

// DefaultConfig returns the article's weights and the documented bounds.
func DefaultConfig() Config { return config.Default() }
