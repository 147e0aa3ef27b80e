package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
)

// The linker sets version (Makefile). After a plain go build or go install, version is
// empty, and the build information contains the version.
var version string

// buildVersion describes the running binary.
type buildVersion struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the sources
	Time     string `json:"time,omitempty"`     // of the revision, RFC 3339
	Modified bool   `json:"modified,omitempty"` // the sources differed from the revision
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readVersion combines the values of the linker and the build information.
func readVersion() buildVersion {
	v := buildVersion{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v.Version == "" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.time":
				v.Time = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	return v
}

// String is the line that `version` prints.
func (v buildVersion) String() string {
	line := "dispatcherd " + v.Version
	if v.Revision != "" {
		line += " " + v.Revision[:min(12, len(v.Revision))]
	}
	if v.Modified {
		line += " (modified)"
	}
	return line + " " + v.Go + " " + v.Platform
}

func (a *app) versionCommand() *cobra.Command {
	cmd := cli.New("version", "Print the version", "  dispatcherd version\n  dispatcherd version -o json")
	cmd.RunE = func(*cobra.Command, []string) error { return a.printVersion() }
	return cmd
}

// versionFlag adds --version to the root. Cobra's own flag would use a template (see
// writeHelp).
func (a *app) versionFlag(root *cobra.Command) {
	show := root.Flags().BoolP("version", "v", false, "print the version, like the command version")
	cli.OnlyOnCommandLine(root.Flags())
	help := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *show {
			return a.printVersion()
		}
		return help(cmd, args)
	}
}

func (a *app) printVersion() error {
	v := readVersion()
	return a.PrintLine("version", v, "%s", v)
}
