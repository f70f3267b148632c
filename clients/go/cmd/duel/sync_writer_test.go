package main

import (
	"io"
	"sync"
)

// syncWriter lets several players write one log.
type syncWriter struct {
	mutex  sync.Mutex
	buffer io.Writer
}

func (w *syncWriter) Write(text []byte) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.buffer.Write(text)
}
