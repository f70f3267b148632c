// Package testserver runs the server's program for tests: FIRETEAM_SERVER is its path.
package testserver

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// startTimeout is the longest time until a server serves, also on a busy machine.
const startTimeout = time.Minute

// Server is a running server with its store in a temporary folder.
type Server struct {
	// URI of the client port.
	URI string

	t         *testing.T
	folder    string
	arguments []string
	ports     []string
	process   *exec.Cmd
}

// Start starts a server with the shipped rulesets on free ports. It is killed at the end of the test.
func Start(t *testing.T) *Server {
	t.Helper()
	rulesets, err := filepath.Abs(filepath.Join(moduleFolder(t), "../../rulesets"))
	if err != nil {
		t.Fatal(err)
	}
	return StartWith(t, "--rulesets", rulesets)
}

// StartWith starts a server with these arguments on free ports. It is killed at the end of the test.
func StartWith(t *testing.T, arguments ...string) *Server {
	t.Helper()
	if os.Getenv("FIRETEAM_SERVER") == "" {
		t.Skip("SKIPPED: FIRETEAM_SERVER is not set to the path of the server's program")
	}
	server := &Server{t: t, folder: t.TempDir(), arguments: arguments, ports: []string{"127.0.0.1:0", "127.0.0.1:0"}}
	server.start()
	t.Cleanup(server.Kill)
	return server
}

// Kill ends the process as a crash does.
func (s *Server) Kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
		s.process = nil
	}
}

// StartAgain starts a killed server on the same store and ports.
func (s *Server) StartAgain() { s.t.Helper(); s.start() }

func (s *Server) start() {
	s.t.Helper()
	arguments := append([]string{"serve", "--listen", s.ports[0], "--operator-listen", s.ports[1],
		"--token-key-file", "token-key", "--match-key-file", "match-key.pem"}, s.arguments...)
	process := exec.Command(os.Getenv("FIRETEAM_SERVER"), arguments...)
	process.Dir = s.folder
	process.Env = slices.DeleteFunc(os.Environ(), func(it string) bool { return strings.HasPrefix(it, "FIRETEAM_") })
	log, err := process.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.process = process
	started := make(chan []string, 1)
	go readLog(log, started)
	select {
	case ports := <-started:
		if ports == nil {
			s.t.Fatal("the server ended before it served")
		}
		s.ports = ports
		s.URI = "http://" + ports[0]
	case <-time.After(startTimeout):
		s.t.Fatal("the server did not start in time")
	}
}

var startedLine = regexp.MustCompile(`server started.* listen=(\S+).* operator_listen=(\S+)`)

// readLog sends the ports of the log line `server started`, or nil at the end of a log without it.
func readLog(log io.Reader, started chan<- []string) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if found := startedLine.FindStringSubmatch(lines.Text()); found != nil {
			started <- found[1:]
		}
	}
	close(started)
}

// moduleFolder is the folder with go.mod, above that of the test.
func moduleFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.Getwd()
	for err == nil && folder != filepath.Dir(folder) {
		if _, missing := os.Stat(filepath.Join(folder, "go.mod")); missing == nil {
			return folder
		}
		folder = filepath.Dir(folder)
	}
	t.Fatal("no go.mod above the test")
	return ""
}
