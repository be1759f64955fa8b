import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

const FIRST_LOAD_LIMIT_BYTES = 150_000;

/** Prints what a first visit loads, compressed, and ends the build where that is over the limit. */
function firstLoadBudget(): Plugin {
  return {
    name: "first-load-budget",
    apply: "build",
    generateBundle(_options, bundle) {
      const files = Object.values(bundle);
      const seen = new Set<string>();
      const follow = (name: string): void => {
        const chunk = bundle[name];
        if (seen.has(name) || chunk?.type !== "chunk") return;
        seen.add(name);
        chunk.imports.forEach(follow);
      };
      for (const file of files) {
        if (file.type === "chunk" && file.isEntry) follow(file.fileName);
        if (file.type === "asset" && file.fileName.endsWith(".css")) seen.add(file.fileName);
      }
      let total = 0;
      for (const file of files) {
        if (seen.has(file.fileName)) total += gzipSync(file.type === "chunk" ? file.code : file.source).length;
      }
      this.info(`first load: ${(total / 1000).toFixed(1)} kB gzip of at most ${FIRST_LOAD_LIMIT_BYTES / 1000} kB`);
      if (total > FIRST_LOAD_LIMIT_BYTES) this.error("The first load is over its limit.");
    },
  };
}

export default defineConfig(({ command }) => ({
  base: command === "build" ? "/static/console/" : "/",
  plugins: [firstLoadBudget()],
  build: {
    outDir: "../server/static/console",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      // Libraries mark what runs in browsers only, for servers that render pages; here all of it does.
      onLog: (level, log, report) => log.code !== "MODULE_LEVEL_DIRECTIVE" && report(level, log),
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8470", "/readyz": "http://127.0.0.1:8470", "/static": "http://127.0.0.1:8470" } },
}));
