package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var licenseFile = regexp.MustCompile(`(?i)^(licen[sc]e|copying|unlicense)([.-].*)?$`)

// inFolder returns the licenses in the license files of a module. A module
// without any may be a folder of a repository that has one above.
func inFolder(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		found = append(found, identify(string(text))...)
	}
	return found, nil
}

// sentences are parts of license texts, in lower case with single spaces. In each
// group only the first match counts, because the later sentences are parts of the
// earlier ones.
var sentences = [][]struct{ text, license string }{
	{{"apache license version 2.0", "Apache-2.0"}, {"apache license, version 2.0", "Apache-2.0"}},
	{{"mozilla public license version 2.0", "MPL-2.0"}, {"mozilla public license, version 2.0", "MPL-2.0"}},
	{
		{"gnu affero general public license version 3", "AGPL-3.0"},
		{"gnu lesser general public license version 3", "LGPL-3.0"},
		{"gnu lesser general public license version 2.1", "LGPL-2.1"},
		{"gnu general public license version 3", "GPL-3.0"},
		{"gnu general public license version 2", "GPL-2.0"},
	},
	{
		{"permission is hereby granted, free of charge, to any person obtaining a copy", "MIT"},
		{
			"permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted, provided",
			"ISC",
		},
		{"permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted, provided", "ISC"},
		{"permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted.", "0BSD"},
		{"this is free and unencumbered software released into the public domain", "Unlicense"},
		{"cc0 1.0 universal", "CC0-1.0"},
	},
}

var spaces = regexp.MustCompile(`\s+`)

// identify returns the licenses whose text occurs.
func identify(text string) []string {
	text = spaces.ReplaceAllString(strings.ToLower(text), " ")
	var found []string
	for _, group := range sentences {
		for _, s := range group {
			if strings.Contains(text, s.text) {
				found = append(found, s.license)
				break
			}
		}
	}
	if strings.Contains(text, "redistribution and use in source and binary forms") {
		license := "BSD-2-Clause"
		if strings.Contains(text, "neither the name") || strings.Contains(text, "may not be used to endorse") ||
			strings.Contains(text, "the names of its contributors") {
			license = "BSD-3-Clause"
		}
		found = append(found, license)
	}
	return found
}
