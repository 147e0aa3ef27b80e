package main

import (
	"slices"
	"testing"
)

func TestLicensesAreIdentifiedByTheirText(t *testing.T) {
	for text, want := range map[string][]string{
		"Apache License\n   Version 2.0, January 2004":                                  {"Apache-2.0"},
		"Permission is hereby granted,\nfree of charge, to any person obtaining a copy": {"MIT"},
		"Redistribution and use in source and binary forms … Neither the name of":       {"BSD-3-Clause"},
		"Redistribution and use in source and binary forms … this list":                 {"BSD-2-Clause"},
		"GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007":                          {"GPL-3.0"},
		"Mozilla Public License, version 2.0":                                           {"MPL-2.0"},
		"All rights reserved.":                                                          nil,
	} {
		if got := identify(text); !slices.Equal(got, want) {
			t.Errorf("identify(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestIncompatibleAndUnknownLicensesFail(t *testing.T) {
	daemon, tools := parts[0], parts[3]
	for _, c := range []struct {
		part     part
		licenses []string
		ok       bool
	}{
		{daemon, []string{"MIT"}, true},
		{daemon, []string{"MIT", "GPL-3.0"}, false},
		{daemon, nil, false},
		{tools, []string{"GPL-3.0"}, true},
		{tools, nil, false},
	} {
		if got := c.part.judge(dependency{"x", c.licenses}); (got == "") != c.ok {
			t.Errorf("%s with %q: %q", c.part.name, c.licenses, got)
		}
	}
}
