package main

import (
	"bytes"
	"strings"
	"testing"

	fireteam "github.com/fireteam-dev/fireteam/clients/go"
	"github.com/fireteam-dev/fireteam/clients/go/internal/testserver"
)

func TestDuelIsPlayedAgainstTheServer(t *testing.T) {
	server := testserver.Start(t)
	client, err := fireteam.Connect(server.URI)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var log bytes.Buffer
	if err := playDuel(t.Context(), client, 11, &syncWriter{buffer: &log}); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for text, times := range map[string]int{": accepted\n": 2, " at 203.0.113.7:9000\n": 2, "reported, 2 ratings changed\n": 1} {
		if strings.Count(log.String(), text) != times {
			t.Errorf("%q is not %d times in:\n%s", text, times, log.String())
		}
	}
}
