package rawclient

import (
	"fmt"
	"net/http"

	"golang.org/x/net/http2"
)

// readLoop takes the server's frames until the connection ends.
func (c *H2) readLoop() {
	for {
		frame, err := c.framer.ReadFrame()
		if streamErr, ok := err.(http2.StreamError); ok {
			c.update(streamErr.StreamID, func(s *Stream) { s.err = streamErr })
			continue
		}
		if err != nil {
			c.mu.Lock()
			if c.err == nil {
				c.err = fmt.Errorf("the connection has ended: %w", err)
			}
			c.cond.Broadcast()
			c.mu.Unlock()
			return
		}
		c.handle(frame)
	}
}

func (c *H2) handle(frame http2.Frame) {
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return
		}
		c.learn(f)
		c.write.Lock()
		_ = c.framer.WriteSettingsAck()
		c.write.Unlock()
	case *http2.PingFrame:
		if !f.IsAck() {
			c.write.Lock()
			_ = c.framer.WritePing(true, f.Data)
			c.write.Unlock()
		}
	case *http2.WindowUpdateFrame:
		c.mu.Lock()
		if f.StreamID == 0 {
			c.credit += int64(f.Increment)
		} else if s := c.streams[f.StreamID]; s != nil {
			s.credit += int64(f.Increment)
		}
		c.cond.Broadcast()
		c.mu.Unlock()
	case *http2.MetaHeadersFrame:
		h := http.Header{}
		for _, field := range f.Fields {
			h[http.CanonicalHeaderKey(field.Name)] = append(h[http.CanonicalHeaderKey(field.Name)], field.Value)
		}
		c.update(f.StreamID, func(s *Stream) {
			// An interim answer is replaced by the final one; trailers are not
			// kept.
			if status := h[":status"]; len(status) > 0 && status[0][0] != '1' {
				s.header = h
			}
			s.ended = s.ended || f.StreamEnded()
		})
	case *http2.DataFrame:
		c.update(f.StreamID, func(s *Stream) {
			s.body.Write(f.Data())
			s.ended = s.ended || f.StreamEnded()
		})
	case *http2.RSTStreamFrame:
		c.update(f.StreamID, func(s *Stream) { s.err = fmt.Errorf("%w: %s", errReset, f.ErrCode) })
	case *http2.GoAwayFrame:
		c.mu.Lock()
		for id, s := range c.streams {
			if id > f.LastStreamID && !s.ended {
				s.err = fmt.Errorf("%w: %s", errGoAway, f.ErrCode)
			}
		}
		c.cond.Broadcast()
		c.mu.Unlock()
	}
}

func (c *H2) learn(f *http2.SettingsFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = f.ForeachSetting(func(s http2.Setting) error {
		c.settings[s.ID] = s.Val
		switch s.ID {
		case http2.SettingInitialWindowSize:
			for _, stream := range c.streams {
				stream.credit += int64(s.Val) - c.initial
			}
			c.initial = int64(s.Val)
		case http2.SettingMaxFrameSize:
			c.maxFrame = int(s.Val)
		}
		return nil
	})
	c.cond.Broadcast()
}

// update changes a stream and wakes who waits for it.
func (c *H2) update(id uint32, change func(*Stream)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[id]; s != nil {
		change(s)
		c.cond.Broadcast()
	}
}
