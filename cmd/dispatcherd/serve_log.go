package main

import (
	"errors"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// levelFlag is a log level as a flag value.
type levelFlag struct{ *zapcore.Level }

// Set takes the levels that the help names.
func (l levelFlag) Set(s string) error {
	if s = strings.ToLower(s); !slices.Contains([]string{"debug", "info", "warn", "error"}, s) {
		return errors.New("give debug, info, warn or error")
	}
	return l.Level.Set(s)
}

// Type names the kind of value in help texts.
func (levelFlag) Type() string { return "level" }

// logger makes the daemon's log on the error output.
func (f *serveFlags) logger(a *app) (*zap.Logger, error) {
	format := f.format
	if format == "auto" {
		format = "json"
		if a.IsTerminal(a.Err) {
			format = "console"
		}
	}
	var enc zapcore.Encoder
	switch format {
	case "json":
		cfg := zap.NewProductionEncoderConfig()
		cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
		enc = zapcore.NewJSONEncoder(cfg)
	case "console":
		cfg := zap.NewDevelopmentEncoderConfig()
		cfg.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		if no, _ := a.Env("NO_COLOR"); no == "" && a.IsTerminal(a.Err) {
			cfg.EncodeLevel = zapcore.CapitalColorLevelEncoder
		}
		enc = zapcore.NewConsoleEncoder(cfg)
	default:
		return nil, exit.Errorf(exit.Usage, "--log-format is %q, give json, console or auto", f.format)
	}
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(a.Err)), f.level)), nil
}
