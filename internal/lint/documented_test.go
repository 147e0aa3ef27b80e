package lint

import (
	"go/ast"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const undocumented = "%s has no doc comment: say what it is, its unit or shape, and its errors"

func checkDocs(s source) []string {
	if s.test() {
		return nil
	}
	var found []string
	add := func(id *ast.Ident, docs ...*ast.CommentGroup) {
		for _, doc := range docs {
			if strings.TrimSpace(doc.Text()) != "" {
				return
			}
		}
		if id.IsExported() {
			found = append(found, s.finding(id, undocumented, id.Name))
		}
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d)) {
				add(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				docSpec(d, spec, add)
			}
		}
	}
	return found
}

// docSpec checks one type, constant or variable. A comment above a group is
// sufficient for its constants and variables.
func docSpec(d *ast.GenDecl, spec ast.Spec, add func(*ast.Ident, ...*ast.CommentGroup)) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		add(spec.Name, d.Doc, spec.Doc)
		methods, ok := spec.Type.(*ast.InterfaceType)
		if !ok || !spec.Name.IsExported() {
			return
		}
		for _, m := range methods.Methods.List {
			for _, name := range m.Names {
				add(name, m.Doc, m.Comment)
			}
		}
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			add(name, d.Doc, spec.Doc, spec.Comment)
		}
	}
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	for t := d.Recv.List[0].Type; ; {
		switch u := t.(type) {
		case *ast.StarExpr:
			t = u.X
		case *ast.IndexExpr:
			t = u.X
		case *ast.IndexListExpr:
			t = u.X
		case *ast.Ident:
			return u.Name
		default:
			return ""
		}
	}
}

func TestEveryExportedIdentifierIsDocumented(t *testing.T) { obey(t, checkDocs) }

func TestUndocumentedIdentifiersAreRejected(t *testing.T) {
	judge(t, checkDocs,
		example{"a.go", "package p\nfunc F() {}\n", []string{"F has no doc comment"}},
		example{"a.go", "package p\ntype T struct{}\nfunc (t *T) M() {}\n", []string{"T has no", "M has no"}},
		example{"a.go", "package p\ntype t[A any] struct{}\nfunc (x *t[A]) M() {}\n", nil},
		example{"a.go", "package p\n// I is one.\ntype I interface { M() }\n", []string{"M has no"}},
		example{"a.go", "package p\nconst ( A = 1; b = 2 )\nvar C int\n", []string{"A has no", "C has no"}},
		example{"a.go", "package p\n// The letters.\nconst ( A = 1; B = 2 )\n// F does.\nfunc F() {}\n", nil},
		example{"a.go", "package p\n//go:noinline\nfunc F() {}\n", []string{"F has no"}},
		example{"a_test.go", "package p\nfunc F() {}\n", nil},
	)
}

// packageComments returns the comments above the package clauses of the non-test
// files, by folder.
func packageComments(all []source) map[string][]string {
	comments := map[string][]string{}
	for _, s := range all {
		if s.test() {
			continue
		}
		if _, known := comments[s.dir()]; !known {
			comments[s.dir()] = nil
		}
		if text := strings.TrimSpace(s.file.Doc.Text()); text != "" {
			comments[s.dir()] = append(comments[s.dir()], text)
		}
	}
	return comments
}

func checkPackageComments(all []source) []string {
	var found []string
	for dir, texts := range packageComments(all) {
		switch len(texts) {
		case 0:
			found = append(found, "package "+dir+"/: no package comment: say in doc.go what it is for and what it never does")
		case 1:
		default:
			found = append(found, "package "+dir+"/: package comments in several files, which godoc joins: keep the one in doc.go")
		}
	}
	slices.Sort(found)
	return found
}

func TestEveryPackageHasOneComment(t *testing.T) {
	all, err := sources()
	require.NoError(t, err)
	report(t, checkPackageComments(all))
}

func TestMissingPackageCommentsAreRejected(t *testing.T) {
	var all []source
	for name, text := range map[string]string{
		"a/a.go": "package a", "a/a_test.go": "// Not here.\npackage a",
		"b/b.go": "// Package b is.\npackage b", "b/c.go": "// More.\npackage b",
		"c/c.go": "// Package c is.\npackage c",
	} {
		s, err := parse(name, text)
		require.NoError(t, err)
		all = append(all, s)
	}
	found := checkPackageComments(all)
	require.Len(t, found, 2)
	require.Contains(t, found[0], "a/: no package comment")
	require.Contains(t, found[1], "b/: package comments in several files")
}
