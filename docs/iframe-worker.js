// Search in pages that are opened from a disk: browsers start no worker there, so the worker's script runs in a frame.
// The site's theme looks for a polyfill with this name, and would otherwise fetch one.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.tell(data);
      inside.importScripts = (...urls) => urls.map((one) => this.load(one));
      this.load(url).onload = () => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
    }

    load(url) {
      const script = this.frame.contentDocument.createElement("script");
      script.src = new URL(url, location.href);
      this.frame.contentDocument.documentElement.append(script);
      return script;
    }

    tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    postMessage(data) {
      if (!this.ready) return this.waiting.push(data);
      const inside = this.frame.contentWindow, event = new inside.MessageEvent("message", { data });
      setTimeout(() => inside.dispatchEvent(event));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
