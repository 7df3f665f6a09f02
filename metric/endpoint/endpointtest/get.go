// Package endpointtest reads pages of package endpoint, for tests.
package endpointtest

import (
	"fmt"
	"io"
	"net/http"
)

// Get returns the status and the body of a page, such as /readyz, at the address.
func Get(address, path string) (status int, body string, err error) {
	response, err := http.Get("http://" + address + path)
	if err != nil {
		return 0, "", fmt.Errorf("get page: %w", err)
	}
	defer response.Body.Close()

	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", fmt.Errorf("read page %s: %w", path, err)
	}

	return response.StatusCode, string(text), nil
}
