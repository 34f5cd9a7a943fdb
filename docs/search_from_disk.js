// The site searches in a worker, which browsers do not load from the disk: there it runs in a hidden frame.
if (location.protocol === "file:")
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.write("<body></body>");
      inside.document.close();
      // Messages are copies, as between a page and a worker: what the search does to one, the page's own keeps.
      inside.postMessage = (answer) => {
        const data = structuredClone(answer);
        setTimeout(() => this.onmessage?.({ data }));
      };
      this.loaded = new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src: url, onload: resolve, onerror: reject });
        inside.document.body.append(script);
      });
      this.loaded.catch((error) => this.onerror?.(error));
    }
    postMessage(data) {
      const copy = { data: structuredClone(data) };
      this.loaded.then(() => this.frame.contentWindow.onmessage(copy));
    }
    terminate() {
      this.frame.remove();
    }
  };
