package vocabulary

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Tree returns the findings in all text files of a checkout that are tracked,
// or new and not ignored. It needs git.
func Tree(root string) ([]Finding, error) {
	files, err := Files(root)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, file := range files {
		if generated(file) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			return nil, err
		}
		if bytes.IndexByte(text, 0) < 0 {
			found = append(found, File(file, string(text))...)
		}
	}
	return found, nil
}

// Files returns the paths of a checkout's files relative to its root.
func Files(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

// generated reports whether a program or a third party writes a file.
func generated(file string) bool {
	switch base := path.Base(file); {
	case base == "go.sum", base == "package-lock.json", base == "LICENSE", path.Ext(base) == ".svg":
		return true
	}
	return strings.Contains(file, "/testdata/fuzz/")
}
