package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// keep writes results/NAME.json and ../docs/bench/NAME.svg.
func keep(bench, name string, results any, svg string) error {
	text, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	for path, content := range map[string][]byte{
		filepath.Join(bench, "results", name+".json"):            append(text, '\n'),
		filepath.Join(bench, "..", "docs", "bench", name+".svg"): []byte(svg),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("keeping the results: %w", err)
		}
	}
	return nil
}
