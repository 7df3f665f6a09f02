// Command tables generates Go models of some tables of an OVSDB schema.
//
//	tables [-extended] -o DIRECTORY SCHEMA TABLE[=COLUMN,...]...
//
// With columns, the model has only these columns. It then also fits an older database without the
// others.
//
// libovsdb's modelgen command generates all tables, and the schema as Go code. Most of that would
// be unused here.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/modelgen"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

func main() {
	out := flag.String("o", ".", "`directory` of the package, named like it; its Go files are replaced")
	extended := flag.Bool("extended", false, "also generate methods that copy and compare rows without reflection")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: tables [-extended] -o DIRECTORY SCHEMA TABLE[=COLUMN,...]...")
		flag.PrintDefaults()
	}

	flag.Parse()

	if flag.NArg() < 2 {
		flag.Usage()
		os.Exit(2)
	}

	if err := generate(*out, *extended, flag.Arg(0), flag.Args()[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tables:", err)
		os.Exit(1)
	}
}

// generate writes one file per table of the schema into dir, and removes the other Go files there.
func generate(dir string, extended bool, schemaFile string, tables []string) error {
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		return err
	}

	var schema ovsdb.DatabaseSchema
	if err := json.Unmarshal(text, &schema); err != nil {
		return fmt.Errorf("parse %s: %w", schemaFile, err)
	}

	var names []string

	for _, argument := range tables {
		name, columns, hasColumns := strings.Cut(argument, "=")

		table, isKnown := schema.Tables[name]
		if !isKnown {
			return fmt.Errorf("generate table %s: %s does not have it", name, schemaFile)
		}

		if hasColumns {
			if err := keepColumns(table, strings.Split(columns, ",")); err != nil {
				return fmt.Errorf("generate table %s: %w", name, err)
			}
		}

		names = append(names, name)
	}

	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}

	if err := removeGoFiles(dir); err != nil {
		return err
	}

	generator, err := modelgen.NewGenerator()
	if err != nil {
		return err
	}

	for _, name := range names {
		table := schema.Tables[name]
		data := modelgen.GetTableTemplateData(filepath.Base(dir), name, &table)
		data.WithExtendedGen(extended)

		file := filepath.Join(dir, modelgen.FileName(name))
		if err := generator.Generate(file, modelgen.NewTableTemplate(), data); err != nil {
			return fmt.Errorf("generate table %s: %w", name, err)
		}
	}

	return nil
}

// keepColumns removes the other columns of a table.
func keepColumns(table ovsdb.TableSchema, columns []string) error {
	for _, column := range columns {
		if table.Columns[column] == nil {
			return fmt.Errorf("no column %s", column)
		}
	}

	isOther := func(name string, _ *ovsdb.ColumnSchema) bool { return !slices.Contains(columns, name) }
	maps.DeleteFunc(table.Columns, isOther)

	return nil
}

func removeGoFiles(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}

	for _, file := range files {
		if err := os.Remove(file); err != nil {
			return err
		}
	}

	return nil
}
