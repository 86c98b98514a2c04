// uPlot in a page: colours of the scheme, the width of its place, a text for those who cannot see it.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

const scheme = matchMedia('(prefers-color-scheme: dark)');
const dark = signal(scheme.matches);
scheme.addEventListener('change', () => {
  dark.value = scheme.matches;
});

export interface Colours {
  ink: string;
  faint: string;
  grid: string;
  accent: string;
  band: string;
  bad: string;
  series: string[];
}

function colours(): Colours {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: of('ink'),
    faint: of('faint'),
    grid: of('line'),
    accent: of('accent'),
    band: of('band'),
    bad: of('bad'),
    series: [1, 2, 3, 4, 5, 6].map((n) => of(`series-${n}`)),
  };
}

interface Props {
  /** What the plot shows, in a sentence with its main numbers. */
  text: string;
  /** The same numbers as a table, unless one stands beside the plot anyway. */
  children?: ComponentChildren;
  data: uPlot.AlignedData;
  height?: number;
  options(colours: Colours): Omit<uPlot.Options, 'width' | 'height'>;
}

export function Plot({ text, children, data, height = 240, options }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const isDark = dark.value;
  const shape = data.length;

  // Made anew for another scheme or number of series only.
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const made = new uPlot({ ...options(colours()), width: element.clientWidth, height }, data, element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [isDark, shape, height]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);

  return (
    <figure class="plot">
      <div ref={place} role="img" aria-label={text} />
      {children && (
        <figcaption>
          <details>
            <summary>The numbers of this plot as a table</summary>
            {children}
          </details>
        </figcaption>
      )}
    </figure>
  );
}

/** An axis in the type and colours of the page. */
export function axis(c: Colours, label: string, more: Partial<uPlot.Axis> = {}): uPlot.Axis {
  return {
    label,
    stroke: c.faint,
    font: '12px system-ui, sans-serif',
    labelFont: '12px system-ui, sans-serif',
    labelSize: 20,
    labelGap: 0,
    size: 32,
    grid: { stroke: c.grid, width: 1 },
    ticks: { stroke: c.grid, width: 1, size: 4 },
    ...more,
  };
}
