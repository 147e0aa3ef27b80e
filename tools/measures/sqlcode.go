package main

import (
	"path"
	"regexp"
	"strings"
)

// sqlCode is what is counted in the files of migrations.
type sqlCode struct {
	lines     int
	functions map[string]bool
	bodies    int // lines of the bodies in PL/pgSQL
	patches   int // places where a text is taken from the database and changed
	outboxes  int // tables whose rows tell a reader what to do, and are deleted by it
}

var (
	function = regexp.MustCompile(`(?is)CREATE (?:OR REPLACE )?FUNCTION ([\w.]+)\s*\((.*?)\sAS (\$\w*\$)`)
	created  = regexp.MustCompile(`CREATE (?:OR REPLACE )?FUNCTION ([\w.]+)`)
	outbox   = regexp.MustCompile(`CREATE TABLE dispatcherd\.(ends|operations)\b`)
	notified = regexp.MustCompile(`pg_notify\('(\w+)'`)
)

func (t *tree) sqlCode() sqlCode {
	c := sqlCode{functions: map[string]bool{}}
	bodies := map[string]int{} // the last one counts
	for _, name := range t.names {
		if path.Ext(name) != ".sql" || !strings.HasPrefix(name, "migrations/") {
			continue
		}
		text := t.files[name]
		c.lines += strings.Count(text, "\n")
		c.outboxes += len(outbox.FindAllString(text, -1))
		c.patches += strings.Count(text, "pg_get_functiondef(")
		for _, m := range created.FindAllStringSubmatch(text, -1) {
			c.functions[m[1]] = true
		}
		for _, at := range function.FindAllStringSubmatchIndex(text, -1) {
			name, head, quote := text[at[2]:at[3]], text[at[4]:at[5]], text[at[6]:at[7]]
			body, _, _ := strings.Cut(text[at[1]:], quote)
			bodies[name] = 0
			if strings.Contains(strings.ToLower(head), "plpgsql") {
				bodies[name] = strings.Count(body, "\n")
			}
		}
	}
	for _, n := range bodies {
		c.bodies += n
	}
	return c
}

// channels counts the channels that the product notifies.
func (t *tree) channels() int {
	names := map[string]bool{}
	for _, name := range t.names {
		if path.Ext(name) == ".sql" && strings.HasPrefix(name, "migrations/") || isProduct(name) {
			for _, m := range notified.FindAllStringSubmatch(t.files[name], -1) {
				names[m[1]] = true
			}
		}
	}
	return len(names)
}
