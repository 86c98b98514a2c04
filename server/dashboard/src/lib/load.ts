// What a page shows is loaded, shown, and loaded again: the one way to do it.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { key } from '../api/key';

export interface Loaded<T> {
  data: T | null;
  error: Error | null;
  loading: boolean;
  reload(): void;
}

/**
 * Loads when `name` changes (null: nothing), and again `every` so many milliseconds. What was loaded
 * under the same name stays while it is loaded again.
 */
export function useLoad<T>(
  name: string | null,
  load: () => Promise<T>,
  every: number | null = null,
): Loaded<T> {
  const state = useSignal<{ name: string | null; data: T | null; error: Error | null }>({
    name: null,
    data: null,
    error: null,
  });
  const turn = useSignal(0);
  const latest = useRef(load);
  latest.current = load;
  // The turn and the key are dependencies by their values.
  const [turns, as] = [turn.value, key.value];

  useEffect(() => {
    if (name === null) return;
    let over = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const run = async () => {
      try {
        const data = await latest.current();
        if (!over) state.value = { name, data, error: null };
      } catch (cause) {
        const before = state.peek();
        const data = before.name === name ? before.data : null;
        if (!over) state.value = { name, data, error: cause as Error };
      }
      if (!over && every !== null) timer = setTimeout(whenSeen, every);
    };
    // A hidden page asks for nothing.
    const whenSeen = () => {
      if (!document.hidden) return void run();
      document.addEventListener('visibilitychange', whenSeen, { once: true });
    };
    void run();
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', whenSeen);
    };
  }, [name, every, turns, as]);

  const now = state.value;
  const current = name !== null && now.name === name;
  return {
    data: current ? now.data : null,
    error: current ? now.error : null,
    loading: name !== null && !current,
    reload: () => {
      turn.value += 1;
    },
  };
}

/** The text as it was when nothing had been typed for a moment. */
export function useSettled(text: string, milliseconds = 250): string {
  const settled = useSignal(text);
  useEffect(() => {
    const timer = setTimeout(() => {
      settled.value = text;
    }, milliseconds);
    return () => clearTimeout(timer);
  }, [text, milliseconds, settled]);
  return settled.value;
}
