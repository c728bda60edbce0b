"""Draws bars as SVG, to compare results of benches."""

BAR, GAP, LEFT, RIGHT, TOP = 14, 10, 210, 90, 56
WIDTH = 760

COLOURS = ['#d62728', '#1f77b4', '#7f7f7f', '#2ca02c', '#ff7f0e', '#9467bd']


def escape(s):
    return s.replace('&', '&amp;').replace('<', '&lt;')


def bars(path, title, unit, groups, series):
    """groups: names; series: [(name, [value or None for each group])]."""
    series = [s for s in series if any(v is not None for v in s[1])]
    top = max([v for s in series for v in s[1] if v is not None] or [0])

    if top <= 0:
        return

    each = len(series) * BAR + GAP
    height = TOP + len(groups) * each + 12
    scale = (WIDTH - LEFT - RIGHT) / top

    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
           'font-family="sans-serif" font-size="12">' % (WIDTH, height),
           '<rect width="100%" height="100%" fill="white"/>']

    def text(x, y, s, anchor='start', colour='#333', size=12):
        out.append('<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" '
                   'font-size="%d">%s</text>'
                   % (x, y, anchor, colour, size, escape(s)))

    text(12, 22, '%s, %s' % (title, unit), size=14)

    for i, (name, values) in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        text(LEFT + i * 150, 44, name, colour=colour)

        for k, v in enumerate(values):
            if v is None:
                continue

            y = TOP + k * each + i * BAR
            width = max(v, 0) * scale

            out.append('<rect x="%d" y="%.1f" width="%.1f" height="%d" '
                       'fill="%s"/>' % (LEFT, y, width, BAR - 2, colour))
            text(LEFT + width + 4, y + 10, '%.3g' % v if abs(v) < 1000
                 else '{:,.0f}'.format(v), size=10)

    for k, name in enumerate(groups):
        text(LEFT - 8, TOP + k * each + len(series) * BAR / 2 + 4, name, 'end')

    with open(path, 'w') as f:
        f.write('\n'.join(out) + '\n</svg>\n')
