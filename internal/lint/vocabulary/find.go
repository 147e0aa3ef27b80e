package vocabulary

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Finding is one occurrence of a replaced word.
type Finding struct {
	Path string
	Line int // 0: the file's name
	Word string
	Use  string
}

// String formats the finding as "file:line: what: what to do".
func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: the file name contains %q: use %s", f.Path, f.Word, f.Use)
	}
	return fmt.Sprintf("%s:%d: %q: use %s", f.Path, f.Line, f.Word, f.Use)
}

var letters = regexp.MustCompile(`[A-Za-z]+`)

// Split returns the lower-case words of an identifier or text.
func Split(text string) []string {
	var words []string
	for _, run := range letters.FindAllString(text, -1) {
		words = append(words, splitCase(run)...)
	}
	return words
}

// splitCase splits HTTPServer into http and server.
func splitCase(run string) []string {
	var words []string
	start := 0
	for i := 1; i <= len(run); i++ {
		last := i == len(run)
		if !last {
			lowerToUpper := unicode.IsLower(rune(run[i-1])) && unicode.IsUpper(rune(run[i]))
			endOfInitials := i+1 < len(run) && unicode.IsUpper(rune(run[i])) && unicode.IsUpper(rune(run[i-1])) && unicode.IsLower(rune(run[i+1]))
			if !lowerToUpper && !endOfInitials {
				continue
			}
		}
		words = append(words, strings.ToLower(run[start:i]))
		start = i
	}
	return words
}

// below reports whether a file is in a folder, or is itself that path.
func below(file, folder string) bool {
	return file == folder || strings.HasPrefix(file, folder+"/")
}

// applying returns the replacements of the words rejected in a file: those
// rejected in every text, and those rejected in names.
func applying(file string) (texts, declared map[string]string) {
	texts, declared = map[string]string{}, map[string]string{}
	for _, r := range Rules {
		if r.Packages != nil && !slices.ContainsFunc(r.Packages, func(p string) bool { return below(file, p) }) {
			continue
		}
		into := texts
		if r.Names {
			into = declared
		}
		for w := range strings.FieldsSeq(r.Words) {
			into[w] = r.Use
		}
	}
	return texts, declared
}

// File returns the findings in one file. path is relative to the checkout.
func File(file, text string) []Finding {
	texts, declared := applying(file)
	var found []Finding
	add := func(line int, words []string, rejected map[string]string) {
		for _, w := range words {
			if use, ok := rejected[w]; ok {
				found = append(found, Finding{file, line, w, use})
			}
		}
	}
	name := Split(path.Base(file))
	add(0, name, texts)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		add(i+1, Split(l), texts)
	}
	if path.Ext(file) == ".go" {
		add(0, name, declared)
		for _, d := range declarations(file, text) {
			add(d.line, Split(d.name), declared)
		}
	}
	return slices.DeleteFunc(found, func(f Finding) bool { return excepted(f, lines) })
}

func excepted(f Finding, lines []string) bool {
	return slices.ContainsFunc(exceptions, func(e exception) bool {
		return below(f.Path, e.path) &&
			(e.words == "" || slices.Contains(strings.Fields(e.words), f.Word)) &&
			(e.line == "" || f.Line > 0 && strings.Contains(lines[f.Line-1], e.line))
	})
}

type declaration struct {
	name string
	line int
}

// declarations returns the names that a Go file declares: of its package,
// and of types, functions, methods, fields, constants and package variables.
// A file that does not parse has none: the compiler reports it.
func declarations(file, text string) []declaration {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	var all []declaration
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			all = append(all, declaration{id.Name, fset.Position(id.Pos()).Line})
		}
	}
	add(f.Name)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					add(spec.Names...)
				case *ast.TypeSpec:
					add(spec.Name)
					addMembers(spec.Type, add)
				}
			}
		}
	}
	return all
}

// addMembers adds the fields and methods inside a type.
func addMembers(t ast.Expr, add func(...*ast.Ident)) {
	ast.Inspect(t, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			return false
		case *ast.Field:
			add(n.Names...)
		}
		return true
	})
}
