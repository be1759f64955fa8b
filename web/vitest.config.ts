import { defineConfig } from "vitest/config";

// Workers inherit it: local times differ from UTC on every machine.
process.env.TZ = "Asia/Kolkata";

/** `*.test.ts` runs in Node alone, which starts faster; `*.test.tsx` in a browser's document. */
export default defineConfig({
  test: {
    // One document for all files of a worker: making one takes longer than most files. Tests leave nothing in modules that they share.
    isolate: false,
    restoreMocks: true,
    unstubGlobals: true,
    reporters: [["default", { summary: false }]],
    projects: [
      { extends: true, test: { name: "functions", environment: "node", include: ["src/**/*.test.ts"] } },
      {
        extends: true,
        test: { name: "components", environment: "jsdom", include: ["src/**/*.test.tsx"], setupFiles: ["src/testing/setup.ts"] },
      },
    ],
  },
});
