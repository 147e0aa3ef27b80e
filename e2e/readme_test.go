package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// readmeCommands returns the command lines of the section "Example" of the README.
func readmeCommands(t *testing.T) (lines []string) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Example\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, line := range regexp.MustCompile(`(?m)^    (\S.*)$`).FindAllStringSubmatch(section, -1) {
		lines = append(lines, line[1])
	}
	return lines
}

// A new user, with only the README, needs at most four commands from a clone to the result of
// a first job in Python. The program is built already. Its sockets and its data are in
// directories of the test.
func TestReadmeRunsAFirstPythonJobInFourCommands(t *testing.T) {
	commands := readmeCommands(t)
	first := slices.IndexFunc(commands, func(line string) bool { return strings.HasPrefix(line, "bin/dispatcherd request ") })
	require.Positive(t, first, "%q", commands)
	require.LessOrEqual(t, first+1, 4, "%q", commands[:first+1])
	require.Equal(t, "make build", commands[0])
	require.Regexp(t, `^bin/dispatcherd dev +#`, commands[1])
	require.Contains(t, commands[2], "python3")

	dir, err := os.MkdirTemp("", "readme") // t.TempDir is too long for a socket
	require.NoError(t, err)
	defer func() { require.NoError(t, os.RemoveAll(dir)) }()
	require.NoError(t, os.Chmod(dir, 0o755)) // for root, Postgres runs as another user
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	require.NoError(t, os.Symlink(programPath(t), filepath.Join(dir, "bin", "dispatcherd")))
	shell := func(script string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = dir
		cmd.Env = append(programEnv(), "HOME="+dir, "DISPATCHERD_WORKER_SOCKET="+dir+"/w", "DISPATCHERD_API_SOCKET="+dir+"/a",
			"DISPATCHERD_DATA_DIR="+dir+"/data")
		return cmd
	}
	dev := shell("exec " + commands[1])
	printed, err := dev.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, startProcess(dev))
	defer func() {
		require.NoError(t, dev.Process.Signal(syscall.SIGINT))
		require.NoError(t, dev.Wait())
	}()
	lines := bufio.NewScanner(printed)
	for range 3 { // dev is ready
		require.True(t, lines.Scan())
	}

	last := len(commands) - 2 // the last two commands show what the earlier ones did
	script := strings.Join(commands[2:last], "\n") + "\njobs -p >workers; echo inserted; read ended; kill $(cat workers); wait"
	user := shell(script)
	more, err := user.StdinPipe()
	require.NoError(t, err)
	out, err := user.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, startProcess(user))
	shown := bufio.NewScanner(out)
	for _, want := range []string{`{"TEXT":"HELLO"}`, "1", "2", "inserted"} {
		require.True(t, shown.Scan(), "instead of %q", want)
		require.Equal(t, want, strings.ReplaceAll(shown.Text(), `": "`, `":"`))
	}
	for i, want := range []string{`(?s)status +done.*"TEXT": ?"HELLO"`, `placed .* on slot \d+ of`} {
		var text []byte
		eventually(t, func() bool {
			text, _ = shell(commands[last+i]).CombinedOutput() // fails before the end
			return regexp.MustCompile(want).Match(text)
		}, func() string { return commands[last+i] + "\n" + string(text) })
	}
	require.NoError(t, more.Close())
	require.NoError(t, user.Wait())
}
