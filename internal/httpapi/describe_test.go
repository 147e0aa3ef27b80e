package httpapi

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

var update = flag.Bool("update", false, "rewrite openapi.json")

// TestDescriptionIsGeneratedFromTheRoutes compares openapi.json with the routes. With -update it rewrites the file.
func TestDescriptionIsGeneratedFromTheRoutes(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	d := newDescriber(t)
	document := d.document(h.routes)
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	require.NoError(t, e.Encode(document))
	if *update {
		require.NoError(t, os.WriteFile("openapi.json", text.Bytes(), 0o600))
		return
	}
	require.True(t, bytes.Equal(openAPI, text.Bytes()),
		"openapi.json differs from the routes: run go test ./internal/httpapi -run Description -update")
}

// object is a JSON object.
type object = map[string]any

// describer makes an OpenAPI document from routes, Go types and their comments.
type describer struct {
	t       *testing.T
	schemas object
	sources map[string]map[string]comments // by package and type
}

// comments are those of a type.
type comments struct {
	text   string
	fields map[string]string
}

func newDescriber(t *testing.T) *describer {
	return &describer{t: t, schemas: object{}, sources: map[string]map[string]comments{}}
}

func (d *describer) document(routes []rest.Route) object {
	paths := object{}
	for i := range routes {
		r := &routes[i]
		item, _ := paths[r.Path].(object)
		if item == nil {
			item = object{}
			paths[r.Path] = item
		}
		item[strings.ToLower(r.Method)] = d.operation(r)
	}
	d.schema(reflect.TypeFor[rest.Problem](), false)
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "dispatcherd", "version": "1.0.0",
			"description": "Run jobs now and wait for them, insert jobs, follow and cancel them, and ask why one waits.",
		},
		"servers":  []any{object{"url": "/", "description": "this dispatcher"}},
		"security": []any{object{}, object{"token": []any{}}},
		"paths":    paths,
		"components": object{
			"schemas":         d.schemas,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "Needed over TCP with --api-tokens."}},
		},
	}
}

// tags are those of routes whose tag is not the first word of the path.
var tags = map[string]string{"fanouts": "requests", "keys": "limits", "batches": "flows"}

func (d *describer) operation(r *rest.Route) object {
	tag := "operation"
	if parts := strings.Split(r.Path, "/"); parts[1] == "v1" {
		if tag = parts[2]; tags[tag] != "" {
			tag = tags[tag]
		}
	}
	op := object{"operationId": r.ID, "summary": r.Summary, "tags": []string{tag}, "responses": d.responses(r)}
	if r.Input != nil {
		if list := d.parameters(r, r.Input); len(list) > 0 {
			op["parameters"] = list
		}
	}
	if len(r.Bodies) > 0 {
		op["requestBody"] = object{"required": true, "content": d.content(r.Bodies, true)}
	}
	return op
}

func (d *describer) responses(r *rest.Route) object {
	all := object{}
	answers := r.Answers
	if len(answers) == 0 {
		answers = []rest.Answer{{Status: http.StatusOK}}
	}
	for _, a := range answers {
		media := a.Media
		if len(media) == 0 && r.Output != nil {
			media = []rest.Media{{Type: rest.JSON, Value: r.Output}}
		}
		response := object{"description": a.Text}
		if a.Text == "" {
			response["description"] = d.of(r.Output).text
		}
		if len(media) > 0 {
			response["content"] = d.content(media, false)
		}
		all[strconv.Itoa(a.Status)] = response
	}
	for _, k := range r.Kinds() {
		text, status := fmt.Sprintf("%s (`%s%s`)", k.Title, rest.Namespace, k.Name), strconv.Itoa(k.Status)
		if former, there := all[status].(object); there {
			if !strings.Contains(former["description"].(string), text) {
				former["description"] = former["description"].(string) + "; or: " + text
			}
			continue
		}
		all[status] = object{"description": text, "content": object{"application/problem+json": object{"schema": reference("Problem")}}}
	}
	return all
}

// content describes bodies; several ones of a media type are alternatives.
func (d *describer) content(media []rest.Media, body bool) object {
	all := object{}
	for _, m := range media {
		schema := object{}
		if m.Value != nil {
			schema = d.schema(m.Value, body)
		}
		if former, there := all[m.Type].(object); there {
			schema = object{"oneOf": []any{former["schema"], schema}}
		}
		all[m.Type] = object{"schema": schema}
	}
	return all
}

func (d *describer) parameters(r *rest.Route, t reflect.Type) (list []any) {
	for f := range t.Fields() {
		name, in := f.Tag.Get("param"), "query"
		switch {
		case f.Anonymous:
			list = append(list, d.parameters(r, f.Type)...)
			continue
		case f.Tag.Get("header") != "":
			name, in = f.Tag.Get("header"), "header"
		case name == "": // no part of the call
			continue
		case strings.Contains(r.Path, "{"+name+"}"):
			in = "path"
		}
		p := object{"name": name, "in": in, "schema": d.tagged(f, d.schema(f.Type, false)), "description": d.of(t).fields[f.Name]}
		require.NotEmpty(d.t, p["description"], "%s of %s", name, r.ID)
		if in == "path" {
			p["required"] = true
		}
		if f.Type.Kind() == reflect.Slice && name != "exclude" {
			p["explode"] = false // separated by commas
		}
		list = append(list, p)
	}
	return list
}

func reference(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// tagged adds the rules of the tags of a field to its schema.
func (d *describer) tagged(f reflect.StructField, schema object) object {
	rules := schema
	if items, is := schema["items"].(object); is {
		rules = items
	}
	for _, name := range []string{"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "default"} {
		text, given := f.Tag.Lookup(name)
		if !given {
			continue
		}
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			value = text
		}
		if strings.HasSuffix(name, "Items") {
			schema[name] = value
		} else {
			rules[name] = value
		}
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		rules["enum"] = strings.Split(enum, ",")
	}
	return schema
}

// schema describes a type; in a body, a member is required by its tag, otherwise if it is always there.
func (d *describer) schema(t reflect.Type, body bool) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[any]():
		return object{}
	case reflect.TypeFor[dispatcherd.Status]():
		return object{"type": "string", "enum": dispatcherd.Statuses}
	case reflect.TypeFor[dispatcherd.Priority]():
		return object{"type": "integer", "format": "int32", "minimum": 0, "maximum": 10}
	case reflect.TypeFor[contract.Duration]():
		return object{"type": "string", "examples": []string{"1h30m0s"}}
	case reflect.TypeFor[Span]():
		return object{"oneOf": []any{
			object{"type": "number"}, object{"type": "string", "pattern": "^[0-9.]+(ns|us|µs|ms|s|m|h)", "examples": []string{"1.5s", "2m30s"}},
		}}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem(), body)
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Int16, reflect.Int32:
		return object{"type": "integer", "format": "int32"}
	case reflect.Float64:
		return object{"type": "number", "format": "double"}
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem(), body)}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem(), body)}
	case reflect.Struct:
		return d.component(t, body)
	}
	require.Equal(d.t, reflect.String, t.Kind(), "%v", t)
	return object{"type": "string"}
}

// generic finds the last word of the argument of a generic type.
var generic = regexp.MustCompile(`^(\w+)\[.*\.(\w+)\]$`)

// component adds a struct to the schemas, and returns a reference to it.
func (d *describer) component(t reflect.Type, body bool) object {
	name := generic.ReplaceAllString(t.Name(), "$2$1")
	switch {
	case t == reflect.TypeFor[contract.Placement]():
		name = "PlacementRecord"
	case body && d.schemas[name] != nil, body && (t == reflect.TypeFor[contract.Limit]() || t == reflect.TypeFor[contract.Schedule]()):
		name += "Body"
	}
	name = strings.ToUpper(name[:1]) + name[1:]
	if d.schemas[name] != nil {
		return reference(name)
	}
	properties, required := object{}, []string{}
	s := object{"type": "object", "additionalProperties": false, "properties": properties, "description": d.of(t).text}
	d.schemas[name] = s
	d.members(t, body, properties, &required)
	if len(required) > 0 {
		s["required"] = required
	}
	return reference(name)
}

func (d *describer) members(t reflect.Type, body bool, properties object, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			d.members(f.Type, body, properties, required)
			continue
		case name == "" || name == "-":
			continue
		}
		p := d.tagged(f, d.schema(f.Type, body))
		optional := strings.Contains(options, "omit") // omitempty or omitzero
		if f.Type.Kind() == reflect.Pointer && !optional && p["type"] != nil {
			p["type"] = []any{p["type"], "null"}
		}
		if text := d.of(t).fields[f.Name]; text != "" {
			p["description"] = text
		}
		properties[name] = p
		if body && f.Tag.Get("required") != "" || !body && !optional {
			*required = append(*required, name)
		}
	}
}

const module = "github.com/dispatcherd/dispatcherd"

// of returns the comments of a type.
func (d *describer) of(t reflect.Type) comments {
	name, _, _ := strings.Cut(t.Name(), "[")
	if t.PkgPath() == "" {
		return comments{text: "The result."}
	}
	if d.sources[t.PkgPath()] == nil {
		d.sources[t.PkgPath()] = d.read(filepath.Join("../..", strings.TrimPrefix(t.PkgPath(), module)))
	}
	return d.sources[t.PkgPath()][name]
}

// read returns the comments of the types of a package.
func (d *describer) read(folder string) map[string]comments {
	types := map[string]comments{}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(d.t, err)
	for _, file := range slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(path.Base(f), "_test.go") }) {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(d.t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			group, is := n.(*ast.GenDecl)
			if !is {
				return true
			}
			for _, spec := range group.Specs {
				if named, is := spec.(*ast.TypeSpec); is {
					types[named.Name.Name] = d.commentsOf(named, group)
				}
			}
			return false
		})
	}
	return types
}

func (d *describer) commentsOf(named *ast.TypeSpec, group *ast.GenDecl) comments {
	c := comments{fields: map[string]string{}, text: d.sentence(named.Doc, group.Doc)}
	if fields, is := named.Type.(*ast.StructType); is {
		for _, f := range fields.Fields.List {
			for _, name := range f.Names {
				c.fields[name.Name] = d.sentence(f.Doc, f.Comment)
			}
		}
	}
	return c
}

// sentence returns the first comment as one paragraph.
func (d *describer) sentence(all ...*ast.CommentGroup) string {
	for _, c := range all {
		if text := strings.Join(strings.Fields(c.Text()), " "); text != "" {
			return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
		}
	}
	return ""
}
