// Package dashboard checks the files under bench/grafana without Grafana, which refuses nothing loudly.
package dashboard

import (
	"os"
	"path/filepath"
	"testing"
)

const grafanaFolder = "../../bench/grafana"

func read(t *testing.T, name string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(grafanaFolder, name))
	if err != nil {
		t.Fatal(err)
	}
	return body
}
