// Notices that are pushed to this device.
export {};
