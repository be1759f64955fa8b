import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import { askOtherTabs } from "./session";
import { queryClient } from "./stream/queryClient";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/components.css";
import "./styles/dialogs.css";
import "./styles/pages.css";
import "./styles/freshness.css";
import "./styles/subscription.css";
import "./styles/wizard.css";

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no #root");

// Where another tab is signed in, nothing asks for the token.
await askOtherTabs();

createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queryClient}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
