package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// tables are the variables of package claim that hold the texts of statements,
// one entry each.
var tables = regexp.MustCompile(`(?i)^(claim|finish|fetch|backfill)Statements$`)

// links are the connections whose statements claim, finish or fetch.
var links = []string{"claim", "finish", "fetch", "look", "backfill"}

// reads are statements on these connections that do not count, because they
// only read the outcome of an earlier statement.
var reads = []string{"standing", "own-lease", "ownLeaseStatement", "resolve", "again", "ended-before"}

// statements counts the entries of the tables of statements in package claim,
// or of the maps given to newLink for a connection of links.
func statements(t *tree) (int, error) {
	n := 0
	for _, file := range t.sources() {
		if path.Dir(file) != "claim" {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(t.root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			return 0, err
		}
		ast.Inspect(f, func(node ast.Node) bool {
			for _, name := range entries(node) {
				if !slices.Contains(reads, name) {
					t.detail("statements %s", name)
					n++
				}
			}
			return true
		})
	}
	return n, nil
}

// entries returns the names of the statements in a table.
func entries(node ast.Node) []string {
	switch node := node.(type) {
	case *ast.ValueSpec:
		if len(node.Values) == 1 && tables.MatchString(node.Names[0].Name) {
			return keys(node.Values[0])
		}
	case *ast.CallExpr:
		if id, ok := node.Fun.(*ast.Ident); ok && id.Name == "newLink" && len(node.Args) == 3 && slices.Contains(links, literal(node.Args[1])) {
			return keys(node.Args[2])
		}
	}
	return nil
}

// keys returns the keys of a composite literal. For an element without a key
// it returns the first literal string of the element.
func keys(e ast.Expr) []string {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var names []string
	for _, element := range lit.Elts {
		name := ""
		switch element := element.(type) {
		case *ast.KeyValueExpr:
			name = literal(element.Key)
		case *ast.Ident:
			name = element.Name
		}
		if inner, ok := element.(*ast.CompositeLit); ok && name == "" && len(inner.Elts) > 0 {
			name = literal(inner.Elts[0])
			if kv, ok := inner.Elts[0].(*ast.KeyValueExpr); ok {
				name = literal(kv.Value)
			}
		}
		names = append(names, name)
	}
	return names
}

// literal returns the value of a string literal, the name of an identifier,
// or "" for any other expression.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.Ident:
		return e.Name
	}
	return ""
}
