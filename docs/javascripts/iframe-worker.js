// Lets the site search without a server: browsers refuse web workers on pages from the disk, so a hidden frame takes
// the worker's place. It loads the worker's script and passes messages both ways.
if (location.protocol === "file:") {
  const prelude = () => {
    // Inside the frame: what a worker's script expects to find.
    window.postMessage = (data) => parent.dispatchEvent(new CustomEvent("from-frame", { detail: { frame: window, data } }));
    window.importScripts = async (...urls) => {
      for (const url of urls) {
        await new Promise((done, failed) => {
          const script = document.createElement("script");
          Object.assign(script, { src: url, onload: done, onerror: failed });
          document.body.append(script);
        });
      }
    };
  };

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      this.ready = new Promise((done) => this.frame.addEventListener("load", done, { once: true }));
      window.addEventListener("from-frame", (event) => {
        if (event.detail.frame === inside) this.receive(event.detail.data);
      });
      inside.document.open();
      inside.document.write(`<body><script>(${prelude})()<\/script><script src="${url}"><\/script></body>`);
      inside.document.close();
    }

    receive(data) {
      const message = new MessageEvent("message", { data });
      this.dispatchEvent(message);
      if (this.onmessage) this.onmessage(message);
    }

    postMessage(data) {
      this.ready.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
