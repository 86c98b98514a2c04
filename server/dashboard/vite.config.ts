import { defineConfig } from 'vite';

// While developing, the API is that of a running service: ASSAY_SERVER=http://127.0.0.1:8080.
const server = process.env.ASSAY_SERVER ?? 'http://127.0.0.1:8080';
const api = ['/jobs', '/models', '/files', '/datasets', '/comparisons', '/workers', '/healthz', '/readyz'];
const proxy = Object.fromEntries(api.map((path) => [`^${path}`, { target: server }]));

export default defineConfig({
  // Relative, so that the pages work below /ui/ and behind any prefix.
  base: './',
  build: {
    target: 'es2022',
    // A small asset as a data: URL would be refused by the content security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { host: '127.0.0.1', proxy },
  preview: { host: '127.0.0.1', proxy },
});
