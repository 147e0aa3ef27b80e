package main

import (
	"errors"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// levelValue is one of the log levels that the help names.
func levelValue(level *zapcore.Level) settings.Value {
	parse := func(s string) error {
		if s = strings.ToLower(s); !slices.Contains([]string{"debug", "info", "warn", "error"}, s) {
			return errors.New("give debug, info, warn or error")
		}
		return level.Set(s)
	}
	return settings.Value{Kind: "level", Parse: parse, Format: level.String}
}

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
		return nil, exit.Usagef("--log-format is %q, give json, console or auto", f.format)
	}
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(a.Err)), f.level)), nil
}
