// Pictures draws the documents' pictures: it turns each docs/pictures/NAME.txt into NAME.svg.
//
//	go run ./docs/pictures
//
// A description has one line for each element of the picture. A span line draws an axis and names the unit of time.
// Without it, the picture has no axis and is 100 units wide.
//
//	text: what the picture shows, for readers who can't see it
//	span: 18 seconds
//	lane: web-1                 the following lines are in this lane
//	bar: 0 8 holds leads        from, to, style (holds, waits, free, plain), label
//	dots: 0 6.7 3.3 heartbeats  from, to, distance, label
//	mark: 8 kill -9             time, label
//	tell: 8 web-2 8.4 label     an arrow to another lane: time, lane, time of arrival, label
package main

import (
	"errors"
	"fmt"
	"html"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	left, right, width         = 130, 20, 900
	top, laneHeight, barHeight = 16, 58, 28
	letter                     = 7.2 // the width of a letter, at most
)

const style = `<style>
  :root { color-scheme: light dark; }
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .page { fill: #ffffff; stroke: #d0d7de; } .small { font-size: 12px; fill: #57606a; }
  .holds { fill: #b6d8ff; stroke: #0969da; } .waits { fill: #eaeef2; stroke: #8c959f; } .plain { fill: #fff1c2; stroke: #9a6700; }
  .free { fill: none; stroke: #cf222e; stroke-dasharray: 4 3; } .line { stroke: #57606a; fill: none; } .dot { fill: #0969da; } .head { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .page { fill: #0d1117; stroke: #30363d; } .small { fill: #9198a1; }
    .holds { fill: #0c4a8a; stroke: #58a6ff; } .waits { fill: #21262d; stroke: #6e7681; } .plain { fill: #4d3800; stroke: #d29922; }
    .free { stroke: #ff7b72; } .line { stroke: #9198a1; } .dot { fill: #58a6ff; } .head { fill: #9198a1; }
  }
</style>
`

func main() {
	descriptions, err := filepath.Glob("docs/pictures/*.txt")
	if err == nil && len(descriptions) == 0 {
		err = errors.New("found no docs/pictures/*.txt: run this program in the root of the repository")
	}
	for _, path := range descriptions {
		var text []byte
		if text, err = os.ReadFile(path); err != nil {
			break
		}
		var drawn string
		if drawn, err = draw(string(text)); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
			break
		}
		if err = os.WriteFile(strings.TrimSuffix(path, ".txt")+".svg", []byte(drawn), 0o644); err != nil {
			break
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}

// picture collects the elements of a picture.
type picture struct {
	about string
	span  float64 // 0: there is no axis, and the width is 100
	unit  string
	lanes []string
	body  strings.Builder
}

func draw(description string) (string, error) {
	p := &picture{}
	lines := strings.Split(strings.TrimSpace(description), "\n")
	for _, l := range lines { // first, because an arrow can lead to a lane below
		if name, is := strings.CutPrefix(l, "lane: "); is {
			p.lanes = append(p.lanes, name)
		}
	}
	current := -1
	for i, l := range lines {
		kind, rest, _ := strings.Cut(l, ": ")
		if kind == "lane" {
			current++
			fmt.Fprintf(&p.body, "<text x=\"14\" y=\"%d\">%s</text>\n", p.y(current)+19, html.EscapeString(rest))
			continue
		}
		if err := p.add(kind, strings.Fields(rest), rest, current); err != nil {
			return "", fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if p.about == "" {
		return "", errors.New("text: is missing")
	}
	return p.whole(), nil
}

func (p *picture) whole() string {
	height := p.y(len(p.lanes))
	axis := ""
	if p.span > 0 {
		axis = fmt.Sprintf("<line class=\"line\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", left, width-right, height, height)
		for t := 0.0; t <= p.span; t += step(p.span) {
			label := strconv.FormatFloat(t, 'f', -1, 64)
			if t == 0 {
				label = "0 " + p.unit
			}
			axis += fmt.Sprintf("<text class=\"small\" x=\"%.0f\" y=\"%d\">%s</text>\n", p.x(t), height+17, label)
		}
		height += 26
	}
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"about\">\n<title id=\"about\">%s</title>\n%s", width, height, html.EscapeString(p.about), style) +
		fmt.Sprintf("<rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", width-1, height-1) + axis + p.body.String() + "</svg>\n"
}

func step(span float64) float64 {
	for _, s := range []float64{0.1, 0.5, 1, 2, 5} {
		if span/s <= 10 {
			return s
		}
	}
	return 10
}

func (p *picture) y(lane int) int { return top + lane*laneHeight }

func (p *picture) x(t float64) float64 {
	span := p.span
	if span == 0 {
		span = 100
	}
	return left + t/span*(width-left-right)
}

func (p *picture) add(kind string, words []string, rest string, lane int) error {
	numbers := []float64{}
	for _, w := range words {
		n, err := strconv.ParseFloat(w, 64)
		if err != nil {
			break
		}
		numbers = append(numbers, n)
	}
	y := p.y(lane)
	label := func(from int) string { return html.EscapeString(strings.Join(words[min(from, len(words)):], " ")) }
	switch {
	case kind == "text":
		p.about = rest
	case kind == "span" && len(numbers) == 1:
		p.span, p.unit = numbers[0], label(1)
	case kind == "bar" && len(numbers) == 2 && len(words) > 2:
		from, to := p.x(numbers[0]), p.x(numbers[1])
		if float64(len(label(3)))*letter > to-from {
			return fmt.Errorf("the label %q is wider than its bar", label(3))
		}
		fmt.Fprintf(&p.body, "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"4\"/>\n<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
			words[2], from, y, to-from, barHeight, (from+to)/2, y+19, label(3))
	case kind == "dots" && len(numbers) == 3:
		for t := numbers[0]; t <= numbers[1]+1e-9; t += numbers[2] {
			fmt.Fprintf(&p.body, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%d\" r=\"3\"/>\n", p.x(t), y+barHeight+6)
		}
		fmt.Fprintf(&p.body, "<text class=\"small\" x=\"%.1f\" y=\"%d\">%s</text>\n", p.x(numbers[0])+8, y+barHeight+19, label(3))
	case kind == "mark" && len(numbers) == 1:
		p.mark(numbers[0], y, label(1))
	case kind == "tell" && len(words) >= 3 && slices.Contains(p.lanes, words[1]):
		at, err := strconv.ParseFloat(words[2], 64)
		p.arrow(numbers[0], lane, at, slices.Index(p.lanes, words[1]), label(3))
		return err
	default:
		return fmt.Errorf("can't draw %q", kind+": "+rest)
	}
	return nil
}

func (p *picture) mark(t float64, y int, label string) {
	at, beside, anchor := p.x(t), p.x(t)+4, "start"
	if beside+float64(len(label))*letter > width {
		beside, anchor = at-4, "end"
	}
	fmt.Fprintf(&p.body, "<line class=\"line\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n<text class=\"small\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n",
		at, at, y-5, y+barHeight+10, beside, y+barHeight+12, anchor, label)
}

func (p *picture) arrow(from float64, lane int, to float64, other int, label string) {
	y1, y2, tip := p.y(lane)+barHeight, p.y(other)-1, -6
	if other < lane {
		y1, y2, tip = p.y(lane), p.y(other)+barHeight+1, 6
	}
	fmt.Fprintf(&p.body, "<line class=\"line\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n<path class=\"head\" d=\"M%.1f %d l-4 %d l8 0 z\"/>\n<text class=\"small\" x=\"%.1f\" y=\"%d\">%s</text>\n",
		p.x(from), y1, p.x(to), y2, p.x(to), y2, tip, max(p.x(from), p.x(to))+6, (y1+y2)/2+4, label)
}
