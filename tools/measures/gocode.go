package main

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

var noProduct = regexp.MustCompile(
	`_test\.go$|^(harness|bench|tools|examples|conformance|sdk)/|(^|/)internal/(sim|traces?|lint)/|fake|test/`,
)

func isProduct(name string) bool { return path.Ext(name) == ".go" && !noProduct.MatchString(name) }

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

// goCode is what is counted in a set of Go files.
type goCode struct {
	tokens         int
	comments, code int   // lines
	lengths        []int // of the files, in lines
	functions      []int // lengths in lines
}

func (t *tree) goCode(of func(name string) bool) (c goCode) {
	for _, name := range t.names {
		if !of(name) {
			continue
		}
		text := t.files[name]
		c.lengths = append(c.lengths, strings.Count(text, "\n"))
		tokens, comments := scan(text)
		c.tokens, c.comments = c.tokens+tokens, c.comments+comments
		for line := range strings.SplitSeq(text, "\n") {
			if strings.TrimSpace(line) != "" {
				c.code++
			}
		}
		c.functions = append(c.functions, functionLengths(text)...)
	}
	c.code -= c.comments
	return c
}

// commentShare is the percentage of the lines with text that are comments.
func (c goCode) commentShare() int { return 100 * c.comments / max(c.comments+c.code, 1) }

// scan counts the tokens of a file without comments, and the lines of the comments that stand alone.
func scan(text string) (tokens, comments int) {
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, scanner.ScanComments)
	lastLine := 0 // of the token before
	for {
		pos, tok, literal := s.Scan()
		line := file.Line(pos)
		switch {
		case tok == token.EOF:
			return tokens, comments
		case tok == token.COMMENT:
			if line != lastLine {
				comments += 1 + strings.Count(literal, "\n")
			}
		case tok == token.SEMICOLON && literal == "\n":
		default:
			tokens++
			lastLine = line + strings.Count(literal, "\n")
		}
	}
}

func functionLengths(text string) (lengths []int) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			lengths = append(lengths, fset.Position(fn.End()).Line-fset.Position(fn.Pos()).Line+1)
		}
	}
	return lengths
}

// percentile returns the smallest value that p of 100 values do not exceed.
func percentile(values []int, p int) int {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(len(sorted)*p+99, 100)/100-1]
}

// packages counts the folders of the main module with Go files that are no tests, and those with one such file.
func (t *tree) packages() (all, single int) {
	files := map[string]int{}
	for _, name := range t.names {
		other := regexp.MustCompile(`^(harness|bench|tools)/|(^|/)testdata/`).MatchString(name)
		if path.Ext(name) == ".go" && !isTest(name) && !other {
			files[path.Dir(name)]++
		}
	}
	for _, n := range files {
		if n == 1 {
			single++
		}
	}
	return len(files), single
}

// daemonFields counts the fields of the struct Daemon of internal/daemon.
func (t *tree) daemonFields() (n int) {
	t.inspect("internal/daemon/", func(node ast.Node) {
		spec, ok := node.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Daemon" {
			return
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				n += max(len(f.Names), 1)
			}
		}
	})
	return n
}

// heartbeatColumns counts the columns that function beat of claim reads.
func (t *tree) heartbeatColumns() (n int) {
	t.inspect("claim/", func(node ast.Node) {
		beat, ok := node.(*ast.FuncDecl)
		if !ok || beat.Name.Name != "beat" {
			return
		}
		ast.Inspect(beat, func(node ast.Node) bool {
			if scan, ok := node.(*ast.CallExpr); ok {
				if selector, ok := scan.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "Scan" {
					n += len(scan.Args)
				}
			}
			return true
		})
	})
	return n
}

// inspect visits the nodes of the product files in a folder, without those below.
func (t *tree) inspect(folder string, visit func(ast.Node)) {
	for _, name := range t.names {
		if !isProduct(name) || !strings.HasPrefix(name, folder) || strings.Contains(name[len(folder):], "/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), "", t.files[name], parser.SkipObjectResolution)
		if err != nil {
			continue // the compiler reports it
		}
		for n := range ast.Preorder(file) {
			visit(n)
		}
	}
}
